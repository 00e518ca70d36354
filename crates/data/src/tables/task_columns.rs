//! Columns of the table of a task, with the roles that a plan gives them.

use super::{
    faults::Faults,
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
    /// Creates the columns of `table`, without roles.
    pub(super) fn new(table: &'t Table, profiles: Vec<Profile>) -> Self {
        Self { table, profiles, roles: vec![None; table.columns.len()] }
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
        let line = |(c, ((column, role), profile)): (usize, ((&String, &Option<String>), &Profile))| {
            let missing = profile.shape().map_or(profile.rows, |(shape, _)| profile.missing_as(shape));
            let becomes = role.clone().unwrap_or_else(|| format!("ignored: not a column of {what}"));
            ColumnLine::new(column, becomes, missing, self.table.format(c))
        };
        columns.enumerate().map(line).collect()
    }
}
