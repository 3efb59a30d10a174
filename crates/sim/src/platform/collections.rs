//! Hash tables whose order of iteration is the same in each run.

use std::hash::{BuildHasherDefault, DefaultHasher};

type Fixed = BuildHasherDefault<DefaultHasher>;

/// A hash map without random keys.
pub type HashMap<K, V> = std::collections::HashMap<K, V, Fixed>;

/// A hash set without random keys.
pub type HashSet<T> = std::collections::HashSet<T, Fixed>;
