//! Role and encoding of every column, by the schema and the values.

use super::{
    encoding::Planned,
    faults::Faults,
    profile::{MAX_DISTINCT, Profile, Shape},
    rule::{ColumnRule, Kind, Missing, Part},
    schema::{CATEGORY_LIMIT, Target},
    value,
};

/// Number of examples in a message.
const EXAMPLES: usize = 5;
/// Number of characters of a text that a line about a column shows.
const EXAMPLE_CHARS: usize = 24;

/// Role of a column, for a person.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct ColumnLine {
    /// Name of the column.
    pub column: String,
    /// Role or encoding of the column.
    pub becomes: String,
    /// Number of feature columns.
    pub features: usize,
    /// Number of missing values.
    pub missing: u64,
    /// Format by which its texts are read, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Remark about values that may be missing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl ColumnLine {
    /// Creates the line of a column without features.
    pub(super) fn new(column: &str, becomes: String, missing: u64, format: Option<String>) -> Self {
        Self { column: column.into(), becomes, features: 0, missing, format, note: None }
    }
}

/// Column that becomes features.
#[derive(Clone, Debug)]
pub(super) struct FeatureColumn {
    /// Position in the table.
    pub(super) position: usize,
    /// Encoding.
    pub(super) planned: Planned,
}

/// Encoding of a column with a remark about it, or the reason for which it is ignored.
pub(super) enum Decision {
    Encode(Planned, Option<String>),
    Ignore(String),
}

/// Chooses the encoding of the column `name` of `table`. Faults of its values are added to
/// `faults`.
pub(super) fn decide(
    table: &str,
    name: &str,
    profile: &Profile,
    rule: &ColumnRule,
    category_limit: usize,
    faults: &mut Faults,
) -> Decision {
    let ignored = |why: String| Decision::Ignore(why);
    if rule.kind == Some(Kind::Ignore) {
        return ignored("ignored, as the options say".into());
    }
    if let Some(other) = &profile.other {
        if rule.kind.is_some() {
            faults
                .add(table, format!("column '{name}': no encoder reads the type {other}; ignore the column"));
        }
        return ignored(format!("ignored: the type {other} has no encoder; convert it to numbers or texts"));
    }
    // a category is one of texts on request alone: the values may be dates of a format
    if !matches!(rule.kind, Some(Kind::Category | Kind::Code))
        && let Some(ask) = profile.ask(name)
    {
        if rule.kind.is_some() || rule.scale.is_some() || !rule.parts.is_empty() {
            faults.add(table, format!("column '{name}': {ask}"));
        }
        return ignored(format!("ignored: {ask}"));
    }
    let Some((shape, odd)) = profile.shape() else {
        return ignored("ignored: all values are missing".into());
    };
    let missing = rule.missing.unwrap_or_default();
    let mut note = None;
    let kind = match (rule.kind, shape) {
        (Some(kind), _) => kind,
        (None, _) if rule.scale.is_some() => Kind::Number,
        (None, _) if !rule.parts.is_empty() => Kind::Date,
        (None, Shape::Bool) => Kind::Boolean,
        (None, Shape::Number) => Kind::Number,
        (None, Shape::Time) => Kind::Date,
        (None, Shape::List) => Kind::Embedding,
        (None, Shape::Text) => match category_of(name, profile, category_limit) {
            Ok(remark) => {
                note = remark;
                Kind::Category
            }
            Err(why) => return ignored(why),
        },
    };
    if odd > 0 && !matches!(kind, Kind::Category | Kind::Code) {
        odd_values(table, name, profile, shape, faults);
    }
    check_kind(table, name, profile, kind, shape, faults);
    let planned = match kind {
        Kind::Number => Planned::Number { scale: rule.scale.unwrap_or_default(), missing },
        Kind::Boolean => Planned::Boolean { missing },
        Kind::Date => {
            let parts = if rule.parts.is_empty() { vec![Part::Age] } else { rule.parts.clone() };
            Planned::Date { parts, missing }
        }
        Kind::Embedding => Planned::Embedding { width: profile.width.unwrap_or(0), missing },
        Kind::Category | Kind::Code | Kind::Ignore => {
            let values = profile.distinct(shape).unwrap_or_default();
            Planned::Category { values, of: shape, one_hot: kind == Kind::Category, missing }
        }
    };
    Decision::Encode(planned, note)
}

/// Remark about a column of texts that becomes a category.
///
/// # Errors
/// The reason for which it is ignored.
fn category_of(name: &str, profile: &Profile, limit: usize) -> Result<Option<String>, String> {
    let distinct = profile.distinct(Shape::Text).map_or(usize::MAX, |values| values.len());
    let repeats = (profile.rows - profile.missing) as usize >= 2 * distinct.min(usize::MAX / 2);
    if let Some((what, declare)) = profile.mixed(name) {
        // numbers are no category of many values
        return match distinct > limit.min(CATEGORY_LIMIT) || !repeats {
            false => Ok(Some(format!("column '{name}': {what}, so that it became a category; {declare}"))),
            true if distinct <= MAX_DISTINCT => {
                Err(format!("ignored: {what}; {declare}; or column {name}=category"))
            }
            true => Err(format!("ignored: {what}; {declare}")),
        };
    }
    if distinct <= limit && repeats {
        return Ok(None);
    }
    let count = match distinct {
        usize::MAX => format!("more than {MAX_DISTINCT}"),
        distinct => distinct.to_string(),
    };
    let (_, text) = profile.first(Shape::Text).unwrap_or_default();
    let example = if text.is_empty() { text.clone() } else { format!(", such as '{}'", short(&text)) };
    let use_it = remedy(name, distinct, &text);
    Err(format!("ignored: free text ({count} different values{example}){use_it}"))
}

/// Rules by which a column of texts, such as `example`, is not ignored.
fn remedy(name: &str, distinct: usize, example: &str) -> String {
    let digits = example.chars().filter(char::is_ascii_digit).count();
    let as_category = (distinct <= MAX_DISTINCT).then(|| format!("column {name}=category"));
    let as_format = (digits * 2 >= example.chars().count().max(1))
        .then(|| format!("format {name}=FORMAT if all values are numbers, or dates, of one format"));
    let rules: Vec<String> = as_category.into_iter().chain(as_format).collect();
    if rules.is_empty() { String::new() } else { format!("; to use it: {}", rules.join(", or ")) }
}

/// The first characters of a text, on one line.
fn short(text: &str) -> String {
    let mut chars = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let start: String = chars.by_ref().take(EXAMPLE_CHARS).collect();
    if chars.next().is_some() { format!("{start}…") } else { start }
}

/// Adds a fault of values that do not have the type of the others.
fn odd_values(table: &str, name: &str, profile: &Profile, shape: Shape, faults: &mut Faults) {
    let (examples, count) = profile.odd(shape);
    faults.add_many(table, count, || {
        let listed: Vec<String> = examples.iter().map(|(place, text)| format!("{place} '{text}'")).collect();
        let more = if count > EXAMPLES as u64 {
            format!(" and {} more", count - EXAMPLES as u64)
        } else {
            String::new()
        };
        let states: Vec<String> =
            profile.doubtful.iter().map(|format| format!("format {name}={format}")).collect();
        let state = match &states[..] {
            [] => String::new(),
            states => format!(" or state its format ({}),", states.join(" or ")),
        };
        let counts = profile.others().map(|(_, _, others)| others.list()).filter(|_| count > 1);
        let counts = counts.map(|list| format!(", in all {list}")).unwrap_or_default();
        let declare = profile.declare(name);
        format!(
            "column '{name}': {count} of {} values are not {}: {}{more}{counts}; fix them,{declare}{state} \
             or import the column as a category (column {name}=category) or ignore it (column {name}=ignore)",
            profile.rows - profile.missing,
            shape.noun(),
            listed.join(", "),
        )
    });
}

/// Adds the faults of a column that becomes a `kind`.
fn check_kind(table: &str, name: &str, profile: &Profile, kind: Kind, shape: Shape, faults: &mut Faults) {
    let fits = match kind {
        Kind::Number => matches!(shape, Shape::Number | Shape::Bool),
        Kind::Boolean => {
            let is_flag = |values: Vec<String>| values.iter().all(|value| value == "0" || value == "1");
            shape == Shape::Bool || (shape == Shape::Number && profile.distinct(shape).is_some_and(is_flag))
        }
        Kind::Date => shape == Shape::Time,
        Kind::Embedding => shape == Shape::List,
        Kind::Category | Kind::Code | Kind::Ignore => true,
    };
    if !fits {
        let noun = match kind {
            Kind::Number => "a number",
            Kind::Boolean => "a truth value (true, false, yes, no, 0, 1)",
            Kind::Date => "a date (ISO 8601, such as 2024-03-31, or of one format)",
            _ => "a list of numbers",
        };
        let example = profile.first(shape).map_or(String::new(), |(place, text)| format!("{place} '{text}'"));
        faults.add(
            table,
            format!(
                "column '{name}': not every value is {noun}: {example};{} choose another kind",
                profile.declare(name).replace("),", "), or")
            ),
        );
    }
    if matches!(kind, Kind::Number) && profile.infinite.1 > 0 {
        let places = profile.infinite.0.join(", ");
        faults.add_many(table, profile.infinite.1, || {
            format!("column '{name}': {} infinite numbers ({places}); leave them empty", profile.infinite.1)
        });
    }
    if kind == Kind::Embedding {
        if let (Some((place, other)), Some(width)) = (&profile.other_width, profile.width) {
            faults.add(
                table,
                format!(
                    "column '{name}': {place}: a list of {other} numbers, but the first has {width}; \
                         all lists have one length"
                ),
            );
        }
        if profile.width == Some(0) {
            faults.add(table, format!("column '{name}': the lists are empty; ignore the column"));
        }
    }
    if matches!(kind, Kind::Category | Kind::Code) && profile.distinct(shape).is_none() {
        faults.add(
            table,
            format!("column '{name}': a category of more than {MAX_DISTINCT} values; ignore the column"),
        );
    }
}

/// Target of a node table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PlannedTarget {
    /// A class per node in each column.
    Classes(Vec<PlannedClasses>),
    /// A number per node, or several.
    Values,
}

/// Classes of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlannedClasses {
    /// Names of the classes.
    pub(super) names: Vec<String>,
    /// Type of the values.
    pub(super) of: Shape,
}

impl PlannedTarget {
    /// Role of the column number `k` of the target, for people.
    pub(super) fn describe(&self, k: usize) -> String {
        match self {
            Self::Classes(columns) => {
                let names = columns.get(k).map_or(&[][..], |column| &column.names[..]);
                match (names.len(), names.iter().find(|name| value::is_missing_word(name))) {
                    (1, _) => "label: 1 class, so there is nothing to learn".into(),
                    (count, None) => format!("label: {count} classes"),
                    (count, Some(word)) => {
                        format!(
                            "label: {count} classes, of which '{word}' is one; leave a missing label empty"
                        )
                    }
                }
            }
            Self::Values => "target of a regression".into(),
        }
    }

    /// Target of several columns, each of which has one of these; `None` if they are of both kinds.
    pub(super) fn joined(columns: Vec<Self>) -> Option<Self> {
        let count = columns.len();
        let classes_of = |column| match column {
            Self::Classes(classes) => classes,
            Self::Values => Vec::new(),
        };
        let classes: Vec<PlannedClasses> = columns.into_iter().flat_map(classes_of).collect();
        match classes.len() {
            0 => Some(Self::Values),
            n if n == count => Some(Self::Classes(classes)),
            _ => None,
        }
    }
}

/// Kind of the target of several columns, called `names`, if no task says it: numbers are values,
/// and other columns classes.
pub(super) fn kind_of_several(
    table: &str,
    names: &[String],
    profiles: &[&Profile],
    faults: &mut Faults,
) -> Option<Target> {
    let shapes: Vec<Shape> = profiles.iter().filter_map(|of| Some(of.shape()?.0)).collect();
    let numbers = shapes.iter().filter(|shape| **shape == Shape::Number).count();
    if numbers > 0 && numbers < shapes.len() {
        faults.add(
            table,
            format!(
                "labels {}: some are numbers and some are not, so they are not values of one regression; \
                 pass the task 'classification' to read each as a class, or name one label",
                names.join(", ")
            ),
        );
        return None;
    }
    Some(if numbers > 0 { Target::Regression } else { Target::Classification })
}

/// Chooses the target of the column `name`.
pub(super) fn decide_target(
    table: &str,
    name: &str,
    profile: &Profile,
    given: Option<Target>,
    faults: &mut Faults,
) -> Option<PlannedTarget> {
    let Some((shape, odd)) = profile.shape() else {
        let message = match profile.rows {
            0 => "every label is missing, because the table has no rows; name another table",
            _ => "every label is missing; name another column",
        };
        faults.add(table, format!("column '{name}': {message}"));
        return None;
    };
    if let Some(ask) = profile.ask(name) {
        faults.add(table, format!("column '{name}': {ask}, or pass the task 'classification'"));
        return None;
    }
    let is_fraction = shape == Shape::Number && profile.has_fractions;
    let target = given.unwrap_or(if is_fraction { Target::Regression } else { Target::Classification });
    if target == Target::Regression {
        if shape != Shape::Number {
            faults.add(
                table,
                format!(
                    "column '{name}': a target of a regression is a number, but the column holds {}s{}",
                    &shape.noun()[2..],
                    profile
                        .mixed(name)
                        .map(|(what, declare)| format!(": {what}; {declare}"))
                        .unwrap_or_default()
                ),
            );
        } else if odd > 0 {
            odd_values(table, name, profile, shape, faults);
        }
        if profile.infinite.1 > 0 {
            let places = profile.infinite.0.join(", ");
            faults.add(table, format!("column '{name}': infinite targets ({places}); leave them empty"));
        }
        return Some(PlannedTarget::Values);
    }
    if odd > 0 {
        odd_values(table, name, profile, shape, faults);
    }
    // classes such as yes and no keep their names
    let shape = if shape == Shape::Bool && profile.spells_once() { Shape::Text } else { shape };
    let present = profile.rows - profile.missing_as(shape);
    let names = profile.distinct(shape);
    let many = names.as_ref().is_none_or(|names| names.len() as u64 > 20 && names.len() as u64 * 2 > present);
    if many {
        let count = names.map_or(format!("more than {MAX_DISTINCT}"), |names| names.len().to_string());
        faults.add(
            table,
            format!(
                "column '{name}': {count} classes in {present} labels; name another column, or pass the task \
                 'regression' if it is a number{}",
                profile.mixed(name).map(|(what, declare)| format!("; {what}; {declare}")).unwrap_or_default()
            ),
        );
        return None;
    }
    Some(PlannedTarget::Classes(vec![PlannedClasses { names: names.unwrap_or_default(), of: shape }]))
}

/// Line about a column that becomes features.
pub(super) fn line(column: &str, planned: &Planned, missing: u64) -> ColumnLine {
    let features = planned.fit(&super::stats::Stats::default()).width();
    ColumnLine {
        column: column.into(),
        becomes: planned.describe(),
        features,
        missing,
        format: None,
        note: None,
    }
}

/// Treatment of missing values if no rule says otherwise.
pub(super) fn with_default(rule: Option<&ColumnRule>, missing: Option<Missing>) -> ColumnRule {
    let mut rule = rule.cloned().unwrap_or_default();
    rule.missing = rule.missing.or(missing);
    rule
}
