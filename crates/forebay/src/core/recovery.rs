//! Recovery after the death of a program: the content of its arena, the way of that data to its
//! files, and the parts that another engine can take over. Used by the keeper, by recovery from an
//! image, and by adoption.

pub(crate) mod finish;
pub(crate) mod inherited;
pub(crate) mod plan;
pub(crate) mod work;
