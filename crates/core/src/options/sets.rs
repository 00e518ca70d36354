//! Options that an algorithm owns: a struct beside the algorithm ([`OptionSet`]), which the
//! algorithm's row of a table names ([`OptionGroup`]), and the values of a run ([`OwnOptions`]).
//!
//! ```
//! use clap::Args;
//! use graphmill_core::options::{Fault, OptionGroup, OptionSet, OwnOptions, Values, range};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
//! #[serde(default)]
//! struct FireOptions {
//!     /// Probability that fire spreads to one more neighbour.
//!     #[arg(long, value_name = "P")]
//!     burn_prob: f64,
//! }
//!
//! impl Default for FireOptions {
//!     fn default() -> Self {
//!         Self { burn_prob: 0.7 }
//!     }
//! }
//!
//! impl OptionSet for FireOptions {
//!     fn check(&self) -> Result<(), Fault> {
//!         range("burn_prob", self.burn_prob, 0.0..=1.0)
//!     }
//! }
//!
//! const FIRE: OptionGroup = OptionGroup::of::<FireOptions>();
//! assert_eq!(FIRE.keys()[0].name, "burn_prob");
//!
//! let mut options = OwnOptions::default();
//! assert_eq!(options.get::<FireOptions>().burn_prob, 0.7);
//! options.read(FIRE, &Values::from_iter([("burn_prob".into(), "2".into())]))?;
//! assert_eq!(options.get::<FireOptions>().burn_prob, 2.0);
//! assert_eq!(options.check(FIRE).unwrap_err().to_string(), "burn_prob: '2': a number from 0 to 1");
//! # Ok::<(), Fault>(())
//! ```

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt::{self, Debug, Display},
    ops::{Bound, RangeBounds},
    sync::{Mutex, PoisonError},
};

use clap::Args;
use serde::{Serialize, de::DeserializeOwned};

use super::{Fault, Key, Values, keys, read, write};

/// A struct of options. Its fields are flags of the command line, keys of TOML files and keywords
/// of Python alike.
///
/// ```
/// use clap::Args;
/// use graphmill_core::options::{Fault, OptionSet, range};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
/// #[serde(default)]
/// struct JumpOptions {
///     /// Nodes per jump.
///     #[arg(long, value_name = "N")]
///     jump: usize,
/// }
///
/// impl OptionSet for JumpOptions {
///     fn check(&self) -> Result<(), Fault> {
///         range("jump", self.jump, ..=100)
///     }
/// }
///
/// assert!(JumpOptions { jump: 101 }.check().is_err());
/// ```
pub trait OptionSet:
    Args + Serialize + DeserializeOwned + Default + Clone + PartialEq + Debug + Send + Sync + 'static
{
    /// Options that a resumed run may change, because the results do not depend on them.
    const FREE: &'static [&'static str] = &[];

    /// Checks the ranges of all values ([`range`]), also of those that a run does not read.
    ///
    /// # Errors
    /// The first value that its option cannot have.
    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Returns why another value of this set leaves `option` without effect, and the remedy.
    fn unused(&self, _option: &str) -> Option<String> {
        None
    }
}

/// The type of an [`OptionSet`], as rows of tables name it.
#[derive(Clone, Copy)]
pub struct OptionGroup {
    id: fn() -> TypeId,
    declared: fn() -> Vec<Key>,
    default: fn() -> Box<dyn Erased>,
    read: fn(&Values) -> Result<Box<dyn Erased>, Fault>,
    free: &'static [&'static str],
}

impl OptionGroup {
    /// The group of the options that `T` declares.
    pub const fn of<T: OptionSet>() -> Self {
        Self {
            id: TypeId::of::<T>,
            declared: keys::<T>,
            default: || Box::new(T::default()),
            read: |values| Ok(Box::new(read::<T>(values)?)),
            free: T::FREE,
        }
    }

    /// The options, in the order of the struct.
    pub fn keys(&self) -> &'static [Key] {
        static KNOWN: Mutex<BTreeMap<TypeId, &'static [Key]>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry((self.id)()).or_insert_with(|| (self.declared)().leak())
    }

    /// Returns true if `option` is in the group.
    pub fn has(&self, option: &str) -> bool {
        self.keys().iter().any(|key| key.name == option)
    }

    /// Returns true if a resumed run may change `option`.
    pub fn is_free(&self, option: &str) -> bool {
        self.free.contains(&option)
    }
}

impl PartialEq for OptionGroup {
    fn eq(&self, other: &Self) -> bool {
        (self.id)() == (other.id)()
    }
}

impl Debug for OptionGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys().iter().map(|key| &key.name)).finish()
    }
}

/// An option set of any type.
trait Erased: Any + Debug + Send + Sync {
    fn boxed(&self) -> Box<dyn Erased>;
    fn equals(&self, other: &dyn Any) -> bool;
    fn is_default(&self) -> bool;
    fn values(&self) -> Values;
    fn check(&self) -> Result<(), Fault>;
    fn unused(&self, option: &str) -> Option<String>;
}

impl<T: OptionSet> Erased for T {
    fn boxed(&self) -> Box<dyn Erased> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }

    fn is_default(&self) -> bool {
        *self == T::default()
    }

    fn values(&self) -> Values {
        write(self)
    }

    fn check(&self) -> Result<(), Fault> {
        OptionSet::check(self)
    }

    fn unused(&self, option: &str) -> Option<String> {
        OptionSet::unused(self, option)
    }
}

/// The values of all options that algorithms own, by the type of their set. A set that was not
/// given has its defaults.
#[derive(Default)]
pub struct OwnOptions(BTreeMap<TypeId, Box<dyn Erased>>);

impl OwnOptions {
    /// A copy of the set of type `T`.
    pub fn get<T: OptionSet>(&self) -> T {
        let set = self.0.get(&TypeId::of::<T>());
        set.and_then(|set| (&**set as &dyn Any).downcast_ref::<T>()).cloned().unwrap_or_default()
    }

    /// The set of type `T`, for change.
    pub fn get_mut<T: OptionSet>(&mut self) -> &mut T {
        let set = self.0.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::default()));
        (&mut **set as &mut dyn Any).downcast_mut().expect("sets are stored by their type")
    }

    /// Replaces the set of type `T`.
    pub fn set<T: OptionSet>(&mut self, set: T) {
        *self.get_mut() = set;
    }

    /// These options with another set of type `T`.
    #[must_use]
    pub fn with<T: OptionSet>(mut self, set: T) -> Self {
        self.set(set);
        self
    }

    /// The values of a group.
    pub fn write(&self, group: OptionGroup) -> Values {
        self.of(group, |set| set.values())
    }

    /// Sets the options of a group that `values` has; other values are passed over.
    ///
    /// # Errors
    /// The first impossible value; nothing is set then.
    pub fn read(&mut self, group: OptionGroup, values: &Values) -> Result<(), Fault> {
        let given = || values.iter().filter(|(name, _)| group.has(name));
        if given().next().is_none() {
            return Ok(());
        }
        let mut all = self.write(group);
        all.extend(given().map(|(name, value)| (name.clone(), value.clone())));
        self.0.insert((group.id)(), (group.read)(&all)?);
        Ok(())
    }

    /// Checks the values of a group ([`OptionSet::check`]).
    ///
    /// # Errors
    /// The first value that its option cannot have.
    pub fn check(&self, group: OptionGroup) -> Result<(), Fault> {
        self.of(group, |set| set.check())
    }

    /// Why other values of the group leave `option` without effect ([`OptionSet::unused`]).
    pub fn unused(&self, group: OptionGroup, option: &str) -> Option<String> {
        self.of(group, |set| set.unused(option))
    }

    /// Applies `see` to a group's set, or to its default.
    fn of<T>(&self, group: OptionGroup, see: impl FnOnce(&dyn Erased) -> T) -> T {
        match self.0.get(&(group.id)()) {
            Some(set) => see(&**set),
            None => see(&*(group.default)()),
        }
    }
}

impl Clone for OwnOptions {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|(id, set)| (*id, (**set).boxed())).collect())
    }
}

impl PartialEq for OwnOptions {
    fn eq(&self, other: &Self) -> bool {
        let agrees = |a: &Self, b: &Self| {
            a.0.iter().all(|(id, set)| match b.0.get(id) {
                Some(other) => (**set).equals(&**other),
                None => (**set).is_default(),
            })
        };
        agrees(self, other) && agrees(other, self)
    }
}

impl Debug for OwnOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.values()).finish()
    }
}

/// Checks that the value of `option` lies in a range.
///
/// # Errors
/// It does not, or is not a number; the message has the range.
pub fn range<T: PartialOrd + Display>(
    option: &str,
    value: T,
    range: impl RangeBounds<T>,
) -> Result<(), Fault> {
    if range.contains(&value) {
        return Ok(());
    }
    let wanted = match (range.start_bound(), range.end_bound()) {
        (Bound::Included(least), Bound::Included(most)) => format!("a number from {least} to {most}"),
        (Bound::Included(least), Bound::Excluded(most)) => format!("at least {least} and below {most}"),
        (Bound::Included(least), Bound::Unbounded) => format!("at least {least}"),
        (Bound::Excluded(least), Bound::Included(most)) => format!("above {least} and at most {most}"),
        (Bound::Excluded(least), _) => format!("above {least}"),
        (Bound::Unbounded, Bound::Included(most)) => format!("at most {most}"),
        (Bound::Unbounded, Bound::Excluded(most)) => format!("below {most}"),
        (Bound::Unbounded, Bound::Unbounded) => "a number".into(),
    };
    Err(Fault::of(option, value, wanted))
}

/// Checks that the value of `option` is from 0 up to, not including, 1.
///
/// # Errors
/// It is not.
pub fn probability(option: &str, value: f64) -> Result<(), Fault> {
    let wanted = "a probability of at least 0 and below 1";
    if (0.0..1.0).contains(&value) { Ok(()) } else { Err(Fault::of(option, value, wanted)) }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    struct Pond {
        /// Depth of the water.
        #[arg(long)]
        depth: u32,
        /// Fish in it.
        #[arg(long)]
        fish: Option<u32>,
    }

    impl OptionSet for Pond {
        const FREE: &'static [&'static str] = &["fish"];

        fn check(&self) -> Result<(), Fault> {
            range("depth", self.depth, ..=9)
        }

        fn unused(&self, option: &str) -> Option<String> {
            (option == "fish" && self.depth == 0).then(|| "--depth 0 has no fish".into())
        }
    }

    const POND: OptionGroup = OptionGroup::of::<Pond>();

    fn values(json: serde_json::Value) -> Values {
        json.as_object().unwrap().clone()
    }

    #[test]
    fn sets_are_read_by_name_and_by_type() {
        let mut options = OwnOptions::default();
        assert_eq!(options.write(POND), values(json!({"depth": 0, "fish": null})));
        options.read(POND, &values(json!({"depth": "3", "other": 1}))).unwrap();
        options.read(POND, &values(json!({"fish": 2}))).unwrap();
        assert_eq!(options.get::<Pond>(), Pond { depth: 3, fish: Some(2) });
        let fault = options.read(POND, &values(json!({"depth": 4, "fish": -1}))).unwrap_err();
        assert_eq!(fault.option.as_deref(), Some("fish"));
        assert_eq!(options.get::<Pond>().depth, 3, "nothing is set");
        options.get_mut::<Pond>().depth = 10;
        assert_eq!(options.check(POND).unwrap_err().to_string(), "depth: '10': at most 9");
    }

    #[test]
    fn a_set_that_was_not_given_equals_its_defaults() {
        let (mut options, none) = (OwnOptions::default(), OwnOptions::default());
        options.set(Pond::default());
        assert_eq!(options, none);
        assert_eq!(none, options);
        options.get_mut::<Pond>().depth = 1;
        assert_ne!(options, none);
        assert_ne!(none, options);
        assert_eq!(options.clone(), options);
    }

    #[test]
    fn groups_know_their_options() {
        assert!(POND.has("fish") && !POND.has("dep") && POND.is_free("fish") && !POND.is_free("depth"));
        assert_eq!(POND, OptionGroup::of::<Pond>());
        assert_eq!(format!("{POND:?}"), r#"["depth", "fish"]"#);
        let options = OwnOptions::default();
        assert_eq!(options.unused(POND, "fish").unwrap(), "--depth 0 has no fish");
        assert_eq!(options.unused(POND, "depth"), None);
    }

    #[test]
    fn ranges_are_put_into_words() {
        let of = |fault: Result<(), Fault>| fault.unwrap_err().message;
        assert_eq!(of(range("x", 7, 1..=5)), "'7': a number from 1 to 5");
        assert_eq!(of(range("x", 5, 1..5)), "'5': at least 1 and below 5");
        assert_eq!(of(range("x", -0.5, 0.0..)), "'-0.5': at least 0");
        assert_eq!(of(range("x", f64::NAN, (Bound::Excluded(0.0), Bound::Unbounded))), "'NaN': above 0");
        assert_eq!(of(probability("x", 1.0)), "'1': a probability of at least 0 and below 1");
        assert_eq!(probability("x", 0.0), Ok(()));
    }
}
