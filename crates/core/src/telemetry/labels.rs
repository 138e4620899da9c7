//! Label sets with bounded values. A value is a literal of the code, or a name
//! that a [`Bounded`] set lets through, so no caller can grow a metric.
use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// A name that came from outside and that a [`Bounded`] set let through.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(Arc<str>);

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&&*self.0, encoder)
    }
}

/// Lets through the first `max` names; every later one is `other`.
#[derive(Debug)]
pub struct Bounded {
    names: RwLock<HashSet<Arc<str>>>,
    max: usize,
    other: Name,
}

impl Bounded {
    /// A set of at most `max` names.
    pub fn new(max: usize) -> Self {
        Self {
            names: RwLock::default(),
            max,
            other: Name("other".into()),
        }
    }

    /// The name as a label value, or `other` where the set is full.
    pub fn name(&self, name: &str) -> Name {
        if let Some(known) = self.names.read().get(name) {
            return Name(Arc::clone(known));
        }
        let mut names = self.names.write();
        if names.len() >= self.max && !names.contains(name) {
            return self.other.clone();
        }
        let name: Arc<str> = name.into();
        names.insert(Arc::clone(&name));
        Name(name)
    }
}

macro_rules! one_label {
    ($($(#[$doc:meta])* $name:ident { $field:ident })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
            pub struct $name {
                /// The value, a literal of the code.
                pub $field: &'static str,
            }

            impl From<&'static str> for $name {
                fn from($field: &'static str) -> Self {
                    Self { $field }
                }
            }
        )*
    };
}

one_label! {
    /// How something ended.
    Outcome { outcome }
    /// The result of a step.
    ResultLabel { result }
    /// What a claim or a delivery was worth.
    Verdict { verdict }
    /// The state or action that a finish leads to.
    Goal { goal }
    /// The kind of something.
    Kind { kind }
    /// The part that a connection plays.
    RoleLabel { role }
    /// Temporary or permanent.
    ClassLabel { class }
    /// A gRPC method.
    Method { method }
    /// A chore of the sweeper.
    Chore { chore }
    /// Why something was refused.
    Reason { reason }
}

/// A registered type of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct JobType {
    /// The name of the type, or `other`.
    pub job_type: Name,
}

/// A queue and a lane of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLane {
    /// The name of the queue, or `other`.
    pub queue: Name,
    /// `high`, `normal` or `low`.
    pub lane: &'static str,
}

/// A queue and who has paused it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueBy {
    /// The name of the queue, or `other`.
    pub queue: Name,
    /// `hand` or `system`.
    pub by: &'static str,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueName {
    /// The name of the queue, or `other`.
    pub queue: Name,
}

/// A gRPC method and the code of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct MethodCode {
    /// The full method name, or `unknown`.
    pub method: &'static str,
    /// The gRPC code in UPPER_SNAKE.
    pub code: &'static str,
}

/// A chore and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ChoreResult {
    /// The name of the chore.
    pub chore: &'static str,
    /// `ok` or `failed`.
    pub result: &'static str,
}

/// Counters by one label whose values are literals of the code.
#[derive(Clone, Debug)]
pub struct Counters<L: Clone + std::hash::Hash + Eq>(pub(super) Family<L, Counter>);

impl<L: Clone + std::hash::Hash + Eq> Default for Counters<L> {
    fn default() -> Self {
        Self(Family::default())
    }
}

impl<L: Clone + std::hash::Hash + Eq> Counters<L> {
    /// Counts one.
    pub fn inc(&self, label: impl Into<L>) {
        self.inc_by(label, 1);
    }

    /// Counts `n`.
    pub fn inc_by(&self, label: impl Into<L>, n: u64) {
        self.0.get_or_create(&label.into()).inc_by(n);
    }

    /// The count so far.
    pub fn get(&self, label: impl Into<L>) -> u64 {
        self.0.get(&label.into()).map_or(0, |counter| counter.get())
    }
}

/// Gauges by one label.
#[derive(Clone, Debug)]
pub struct Gauges<L: Clone + std::hash::Hash + Eq>(pub(super) Family<L, Gauge>);

impl<L: Clone + std::hash::Hash + Eq> Default for Gauges<L> {
    fn default() -> Self {
        Self(Family::default())
    }
}

impl<L: Clone + std::hash::Hash + Eq> Gauges<L> {
    /// Sets the value.
    pub fn set(&self, label: impl Into<L>, value: i64) {
        self.0.get_or_create(&label.into()).set(value);
    }

    /// The value, 0 if it was never set.
    pub fn get(&self, label: impl Into<L>) -> i64 {
        self.0.get(&label.into()).map_or(0, |gauge| gauge.get())
    }
}

/// Histograms by one label.
#[derive(Clone, Debug)]
pub struct Histograms<L: Clone + std::hash::Hash + Eq>(pub(super) Family<L, Histogram>);

impl<L: Clone + std::hash::Hash + Eq> Histograms<L> {
    pub(super) fn new(constructor: fn() -> Histogram) -> Self {
        Self(Family::new_with_constructor(constructor))
    }

    /// Takes one observation.
    pub fn observe(&self, label: impl Into<L>, value: f64) {
        self.0.get_or_create(&label.into()).observe(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_set_ends_in_other() {
        let set = Bounded::new(2);
        let (a, b) = (set.name("a"), set.name("b"));
        assert_ne!(a, b);
        assert_eq!(set.name("c"), Name("other".into()));
        assert_eq!(set.name("a"), a);
    }

    #[test]
    fn counters_count_by_label() {
        let counters = Counters::<Outcome>::default();
        counters.inc("accepted");
        counters.inc_by("accepted", 2);
        assert_eq!(counters.get("accepted"), 3);
        assert_eq!(counters.get("refused"), 0);
    }
}
