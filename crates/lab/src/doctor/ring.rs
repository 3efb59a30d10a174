//! The kernel and its io_uring: whether it is allowed, who forbids it, its features, and the
//! resulting engine.

use forebay_uring::probe::KernelVersion;
use forebay_uring::{SetupError, offer::State};

use super::facts::{Capability, Facts};
use super::finding::{Finding, Lost, advised, degraded, full, missing};

/// The oldest kernel Forebay is for.
const OLDEST: KernelVersion = KernelVersion { major: 5, minor: 15 };

/// The first kernel with io_uring.
const FIRST_RING: KernelVersion = KernelVersion { major: 5, minor: 1 };

const ALLOW: &str = "allow io_uring_setup, io_uring_enter and io_uring_register in the filter: in docker and podman \
                     by --security-opt seccomp=PROFILE, in a unit of systemd by SystemCallFilter=@aio";

const RUN_OLDEST: &str = "run Linux 5.15 or newer";

pub(super) fn kernel(facts: &Facts) -> Option<Finding> {
    let found = format!("Linux {}", facts.version);
    if facts.version < OLDEST {
        let means = "older than 5.15, the oldest supported kernel";
        return missing(found, means).advise("run a newer kernel");
    }
    full(found, "5.15 or newer is required")
}

pub(super) fn engine(facts: &Facts) -> Option<Finding> {
    match &facts.engine {
        Ok(described) if facts.offers.is_ok() => full(described, "requests go through io_uring"),
        Ok(described) => {
            let means =
                "a thread pool makes the system calls; a small request costs several times as much";
            degraded(described, means).advise("see io_uring")
        }
        Err(why) => missing(why, "Forebay does not work here")
            .advise("see the message, and the findings on memory and limits"),
    }
}

/// Judges whether this process may use io_uring, and who forbids it.
pub(super) fn permission(facts: &Facts) -> Option<Finding> {
    let disabled = facts.tree.number("/proc/sys/kernel/io_uring_disabled");
    match &facts.offers {
        Ok(_) => allowed(facts, disabled),
        Err(SetupError::Forbidden(_)) => forbidden(facts, disabled),
        Err(SetupError::Missing) => absent(facts, disabled),
        Err(SetupError::Other(error))
            if facts.process.is_filtered
                && matches!(
                    error.raw_os_error(),
                    Some(libc::EPERM | libc::EACCES | libc::ENOSYS)
                ) =>
        {
            by_filter()
        }
        Err(SetupError::TooOld(what)) => {
            refused(format!("this kernel's io_uring lacks {what}")).advise(RUN_OLDEST)
        }
        Err(SetupError::Memory(error)) => refused(format!("no memory for a ring: {error}")).root(
            "raise the limit of locked memory, or the limit of the control group",
            "prlimit --memlock=unlimited --pid $$",
        ),
        Err(error) => refused(error.to_string()).advise(RUN_OLDEST),
    }
}

fn allowed(facts: &Facts, disabled: Option<u32>) -> Option<Finding> {
    match disabled {
        Some(1) => {
            let found = format!("allowed for root{}", and_group(facts));
            let means = "kernel.io_uring_disabled is 1: programs of other users get a thread pool";
            advised(found, means).root(
                "allow it for all users, if they need it",
                "sysctl -w kernel.io_uring_disabled=0",
            )
        }
        Some(_) => full("allowed (kernel.io_uring_disabled is 0)", "no setting forbids it"),
        None => full("allowed", "this kernel has no setting that forbids it"),
    }
}

fn forbidden(facts: &Facts, disabled: Option<u32>) -> Option<Finding> {
    match disabled {
        Some(2) => refused("forbidden for all users: kernel.io_uring_disabled is 2")
            .root("allow it until the next boot", "sysctl -w kernel.io_uring_disabled=0"),
        Some(1) if !facts.process.may(Capability::SysAdmin) => {
            let (own, group) = (facts.process.group, and_group(facts));
            let found = "forbidden: kernel.io_uring_disabled is 1, allowed for root";
            refused(format!("{found}{group}")).root(
                format!("allow it for the group of this process ({own}), or for all users"),
                format!("sysctl -w kernel.io_uring_group={own}"),
            )
        }
        _ if facts.process.is_filtered => by_filter(),
        _ => refused("refused, but not by kernel.io_uring_disabled or a seccomp filter").root(
            "look for a denial by a security module (SELinux, AppArmor) in the kernel log",
            "dmesg | grep -i denied",
        ),
    }
}

/// Judges a kernel without the call, or a filter that says so.
fn absent(facts: &Facts, disabled: Option<u32>) -> Option<Finding> {
    // The switch is there only where io_uring is.
    let is_built_in = disabled.is_some();
    match (facts.process.is_filtered, facts.version >= FIRST_RING) {
        (true, true) if is_built_in => by_filter(),
        (true, true) => {
            refused("missing: the kernel was built without it, or a seccomp filter hides it")
                .advise(ALLOW)
        }
        (_, false) => refused("not in this kernel (5.1)").advise(RUN_OLDEST),
        (false, true) => refused("missing: this kernel was built without it")
            .advise("run a kernel with CONFIG_IO_URING"),
    }
}

pub(super) fn features(facts: &Facts) -> Option<Finding> {
    let all = &facts.offers.as_ref().ok()?.0;
    let lacking: Vec<_> = all.iter().filter(|offer| offer.state != State::Had).collect();
    if lacking.is_empty() {
        return full(format!("all {}", all.len()), "a request has no extra cost");
    }
    let names: Vec<_> = lacking.iter().map(ToString::to_string).collect();
    let finding = degraded(
        format!("{} of {}", all.len() - lacking.len(), all.len()),
        format!("without {}, requests cost more system calls or copies", names.join(", ")),
    );
    let lost = lacking.iter().filter(|offer| offer.state == State::Lost);
    match lost.map(|offer| offer.feature.since()).max() {
        Some(newest) => finding.advise(format!("run Linux {newest} or newer")),
        None => finding.advise("see the reasons given"),
    }
}

fn refused(found: impl Into<String>) -> Lost {
    missing(found, "a thread pool replaces it (see engine)")
}

fn by_filter() -> Option<Finding> {
    refused("forbidden by a seccomp filter of this process").advise(ALLOW)
}

fn and_group(facts: &Facts) -> String {
    match facts.tree.number("/proc/sys/kernel/io_uring_group") {
        Some(group @ 0i64..) => format!(" and for group {group}"),
        _ => " only".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use forebay_uring::{Feature, Offer, Offers};

    use super::super::facts::fake::Fake;
    use super::super::finding::Level;
    use super::*;

    const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

    fn fake(disabled: &str, offers: Result<Offers, SetupError>) -> Fake {
        let mut fake = Fake::new(&[("/proc/sys/kernel/io_uring_group", "-1\n")]);
        if !disabled.is_empty() {
            fake.write(DISABLED, disabled);
        }
        fake.facts.process.group = 1000;
        fake.facts.offers = offers;
        fake
    }

    fn forbidden(disabled: &str) -> Fake {
        fake(disabled, Err(SetupError::Forbidden(String::new())))
    }

    /// Returns the found value, and the remedy: its command, if it has one.
    fn said(fake: &Fake) -> (String, String) {
        let finding = permission(&fake.facts).unwrap();
        let remedy = finding.remedy.map(|remedy| match remedy.command {
            Some(command) => command.line,
            None => remedy.what,
        });
        (finding.found, remedy.unwrap_or_default())
    }

    #[test]
    fn a_prohibition_is_named_with_what_lifts_it() {
        let mut all = forbidden("2");
        all.facts.process.is_filtered = true;
        let (found, remedy) = said(&all);
        assert!(found.contains("is 2"), "{found}");
        assert_eq!(remedy, "sysctl -w kernel.io_uring_disabled=0");

        let mut some = forbidden("1");
        let (found, remedy) = said(&some);
        assert!(found.ends_with("allowed for root only"), "{found}");
        assert_eq!(remedy, "sysctl -w kernel.io_uring_group=1000");
        some.write("/proc/sys/kernel/io_uring_group", "7\n");
        assert!(said(&some).0.ends_with("for root and for group 7"));
        // The switch lets root through, so something else forbids it.
        some.facts.process.capabilities = 1 << Capability::SysAdmin as u32;
        assert!(said(&some).0.starts_with("refused, but not by"));

        let mut filtered = forbidden("0");
        assert!(said(&filtered).0.starts_with("refused, but not by"));
        filtered.facts.process.is_filtered = true;
        let (found, remedy) = said(&filtered);
        assert!(found.contains("seccomp filter") && remedy.contains("SystemCallFilter=@aio"));
    }

    #[test]
    fn a_missing_call_may_be_hidden() {
        let mut absent = fake("0", Err(SetupError::Missing));
        assert!(said(&absent).0.contains("built without it"));
        absent.facts.process.is_filtered = true;
        assert!(said(&absent).0.starts_with("forbidden by a seccomp filter"));
        let mut old = fake("", Err(SetupError::Missing));
        old.facts.process.is_filtered = true;
        assert!(said(&old).0.contains("or a seccomp filter"));
        old.facts.version = KernelVersion { major: 4, minor: 19 };
        assert!(said(&old).0.contains("(5.1)"));
        let other = |errno| fake("0", Err(SetupError::Other(io::Error::from_raw_os_error(errno))));
        let mut filtered = other(libc::EPERM);
        filtered.facts.process.is_filtered = true;
        assert!(said(&filtered).0.contains("seccomp"));
        assert!(said(&other(libc::EMFILE)).0.contains("Too many open files"));
        let memory = SetupError::Memory(io::Error::from_raw_os_error(libc::ENOMEM));
        assert!(said(&fake("0", Err(memory))).1.contains("--memlock"));
        assert!(said(&fake("0", Err(SetupError::TooOld("readv")))).0.contains("lacks readv"));
    }

    #[test]
    fn permission_for_some_users_is_reported() {
        let some = fake("1", Ok(Offers::default()));
        some.write("/proc/sys/kernel/io_uring_group", "5\n");
        assert_eq!(permission(&some.facts).unwrap().level, Level::Full);
        let (found, remedy) = said(&some);
        assert_eq!(found, "allowed for root and for group 5");
        assert_eq!(remedy, "sysctl -w kernel.io_uring_disabled=0");
        assert_eq!(said(&fake("", Ok(Offers::default()))).0, "allowed");
    }

    #[test]
    fn the_engine_decides() {
        let level = |fake: &Fake| engine(&fake.facts).unwrap().level;
        assert_eq!(level(&fake("0", Ok(Offers::default()))), Level::Full);
        let mut dead = forbidden("0");
        assert_eq!(level(&dead), Level::Degraded);
        assert_eq!(kernel(&dead.facts).unwrap().level, Level::Full);
        dead.facts.engine = Err("no memory".to_owned());
        dead.facts.version = KernelVersion { major: 5, minor: 10 };
        assert_eq!(level(&dead), Level::Missing);
        assert_eq!(kernel(&dead.facts).unwrap().level, Level::Missing);
    }

    #[test]
    fn missing_features_are_named_with_the_kernel_that_has_them() {
        let offer = |feature, state| Offer { feature, state };
        let of =
            |offers: &[Offer]| features(&fake("0", Ok(Offers(offers.to_vec()))).facts).unwrap();
        let mut some = vec![offer(Feature::SubmitAll, State::Had)];
        assert_eq!(of(&some).found, "all 1");
        some.extend([
            offer(Feature::SetLength, State::Lost),
            offer(Feature::MinimalWaitEnds, State::Lost),
            offer(Feature::RegisteredFiles, State::Refused("no memory".into())),
        ]);
        let lacking = of(&some);
        assert_eq!((lacking.level, lacking.found.as_str()), (Level::Degraded, "1 of 4"));
        assert!(lacking.means.contains("setting a file's length (6.9)"), "{}", lacking.means);
        assert_eq!(lacking.remedy.unwrap().what, "run Linux 6.19 or newer");
        let refused = of(&[offer(Feature::RegisteredFiles, State::Refused("no".into()))]);
        assert_eq!(refused.remedy.unwrap().what, "see the reasons given");
    }
}
