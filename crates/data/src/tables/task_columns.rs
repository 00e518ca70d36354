//! Columns of the table of a task, with the roles that a plan gives them.

use graphmill_core::Result;

use super::{
    faults::Faults,
    kept::Kept,
    nodes::profile,
    plan::ColumnLine,
    profile::Profile,
    source::Table,
    times::{self, TimeUnit},
};

/// Columns of the table of a task, while their roles are chosen.
pub(super) struct TaskColumns<'t> {
    table: &'t Table,
    pub(super) profiles: Vec<Profile>,
    /// Role of each column that has one.
    pub(super) roles: Vec<Option<String>>,
}

impl<'t> TaskColumns<'t> {
    /// Reads all values of `table` once; faults are added to `faults`. The profiles are kept as
    /// `name`.
    pub(super) fn read(table: &'t Table, kept: &Kept, name: &str, faults: &mut Faults) -> Result<Self> {
        let profiles = profile(table, kept, name, faults)?;
        Ok(Self { table, profiles, roles: vec![None; table.columns.len()] })
    }

    /// Positions of the columns `names`, whose role is `role`; missing ones are faults.
    pub(super) fn key(&mut self, names: &[String], role: &str, faults: &mut Faults) -> Vec<usize> {
        let name = self.table.name();
        let find = |column: &String| faults.take(&name, self.table.position(column));
        let found: Vec<usize> = names.iter().filter_map(find).collect();
        found.iter().for_each(|&c| self.roles[c] = Some(role.into()));
        found
    }

    /// Position and unit of the column of the time, whose unit is `known` from another dataset or
    /// found from its values.
    pub(super) fn time(
        &mut self,
        column: &str,
        known: Option<TimeUnit>,
        faults: &mut Faults,
    ) -> Option<(usize, TimeUnit)> {
        let (c, unit) = times::column(column, self.table, &self.profiles, known, faults)?;
        self.roles[c] = Some(unit.describe().into());
        Some((c, unit))
    }

    /// Lines of the report: columns without a role are not columns of `what`.
    pub(super) fn lines(&self, what: &str) -> Vec<ColumnLine> {
        let columns = self.table.columns.iter().zip(&self.roles).zip(&self.profiles);
        let line = |((column, role), profile): ((&String, &Option<String>), &Profile)| {
            let missing = profile.shape().map_or(profile.rows, |(shape, _)| profile.missing_as(shape));
            let becomes = role.clone().unwrap_or_else(|| format!("ignored: not a column of {what}"));
            ColumnLine { column: column.clone(), becomes, features: 0, missing }
        };
        columns.map(line).collect()
    }
}
