//! What sockets over the ring and over epoll must both do: each test runs on both.

#[path = "net/bench.rs"]
mod bench;
#[path = "net/bounds.rs"]
mod bounds;
#[path = "net/ends.rs"]
mod ends;
#[path = "net/order.rs"]
mod order;
#[path = "net/process.rs"]
mod process;
#[path = "net/streams.rs"]
mod streams;
mod support;

/// Makes of each function a test over the ring and one over epoll.
macro_rules! on_both {
    ($($file:ident: $($name:ident),* $(,)?);* $(;)?) => {
        mod io_uring {
            $($(#[test] fn $name() { super::$file::$name(forebay_uring::net::Choice::IoUring) })*)*
        }
        mod epoll {
            $($(#[test] fn $name() { super::$file::$name(forebay_uring::net::Choice::Epoll) })*)*
        }
    };
}

on_both!(
    streams:
        what_is_sent_comes_back,
        unix_sockets_do_the_same,
        it_connects_as_well_as_it_listens,
        messages_larger_than_any_buffer_come_whole,
        what_is_given_away_goes_behind_what_was_copied,
        who_sends_no_more_can_still_be_answered,
        many_peers_get_what_is_theirs,
        it_is_made_here_and_used_there;
    ends:
        an_address_in_use_is_named,
        a_connection_that_is_refused_is_told,
        a_peer_that_is_gone_before_it_is_accepted,
        a_peer_that_goes_in_the_middle_of_a_message,
        a_peer_that_goes_while_a_send_is_under_way,
        connections_beyond_the_limit_wait_for_a_place,
        a_half_open_connection_is_closed_in_time,
        what_does_not_drain_is_closed_in_time,
        contract_13_a_stale_number_is_nobodys,
        a_listener_that_stops_frees_its_address,
        what_was_sent_arrives_though_closed_behind_it,
        what_is_closed_now_is_told_nothing_more,
        contract_05_dropped_it_lets_go_of_everything,
        contract_05_dropped_elsewhere_the_peers_hear_of_it,
        contract_14_what_a_forked_child_drops_the_parent_keeps;
    bounds:
        contract_18_a_peer_that_never_reads_is_not_read,
        contract_18_without_buffers_nothing_is_lost,
        buffers_that_come_back_wake_who_needs_them,
        contract_15_a_flood_delays_a_message_by_a_pass,
        contract_15_a_pass_has_its_budget_and_each_its_share;
    order:
        contract_15_events_come_as_they_arrived,
        reversed_work_is_seen_and_streams_stay_whole,
        contract_15_a_batch_of_posts_is_one_wake,
        a_post_wakes_a_poll_that_waits,
        contract_15_no_post_is_lost_under_a_storm,
        one_call_sends_what_a_pass_answers;
    process:
        without_descriptors_accepting_rests_and_goes_on,
        a_broken_pipe_raises_no_signal;
);
