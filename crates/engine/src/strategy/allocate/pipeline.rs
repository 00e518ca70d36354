//! Allocation of cores to the stages of a pipeline.
//!
//! # Algorithm
//!
//! A stage on `c` cores takes `a / c + d` seconds per batch: BGL's `T_i / c_i` if `d` is 0,
//! otherwise the `f(c)` of its cache stage. Concurrent stages take as long as the slowest.
//! [`solve`] searches all groupings of the stages and all numbers of cores for the least time.
//!
//! # Source
//!
//! Liu et al., *BGL: GPU-Efficient GNN Training by Optimizing Graph Data I/O and Preprocessing*,
//! NSDI 2023, "Profiling-based Resource Allocation".
//!
//! # Cost
//!
//! Exponential in the number of stages (5 groupings of 3 stages), polynomial in the number of
//! cores.
//!
//! # Memory
//!
//! All groupings of the stages.
//!
//! # Deviations
//!
//! BGL gives every stage its own cores, which leaves most of a small number of cores idle most of
//! the time. Here stages of a group may take turns on its cores, and groups may share all cores,
//! which helps if a stage waits for something other than a core.

/// Cost of a stage, per batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Seconds that are divided among cores, `a`.
    pub divided: f64,
    /// Seconds that do not depend on the number of cores, `d`: serial work and waits.
    pub fixed: f64,
    /// Core seconds that other stages cannot use, whether the stage uses them well or not.
    pub busy: f64,
}

impl Cost {
    /// Seconds per batch on `cores` cores.
    pub fn seconds(&self, cores: usize) -> f64 {
        self.divided / cores as f64 + self.fixed
    }

    /// Cost of a stage that takes `one` seconds on a core and `many` on `cores`, of `busy` core
    /// seconds.
    pub fn fit(one: f64, many: f64, cores: usize, busy: f64) -> Self {
        let share = 1.0 - 1.0 / cores as f64;
        let divided = if cores > 1 { ((one - many) / share).clamp(0.0, one) } else { 0.0 };
        Self { divided, fixed: (many - divided / cores as f64).max(0.0), busy }
    }
}

/// Stages that take turns on the same cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Indices of the stages, ascending.
    pub stages: Vec<usize>,
    /// Number of cores.
    pub cores: usize,
}

/// Assignment of stages and cores to groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// Groups, which run concurrently.
    pub groups: Vec<Group>,
    /// True if each group has its own cores; false if all groups share all cores.
    pub isolated: bool,
    /// Seconds per batch, by the cost model.
    pub seconds: f64,
}

/// Time of a split relative to one group, at most: queues between workers and contention are not in
/// the model.
const MAX_SPLIT_TIME: f64 = 0.95;

/// Allocation with the least seconds per batch: the exact optimum over all groupings of the stages
/// and all whole numbers of cores. One group of all stages wins unless a split saves 5 %.
/// Exponential in the number of stages (3 here: 5 groupings), polynomial in `cores`.
///
/// # Panics
/// `costs` is empty, or `cores` is 0.
pub fn solve(costs: &[Cost], cores: usize) -> Allocation {
    assert!(!costs.is_empty() && cores > 0, "stages and cores");
    let all = Group { stages: (0..costs.len()).collect(), cores };
    let alone = Allocation { seconds: of_group(costs, &all), groups: vec![all], isolated: false };
    let split = splits(costs, cores).into_iter().next();
    split.filter(|split| split.seconds <= alone.seconds * MAX_SPLIT_TIME).unwrap_or(alone)
}

/// Best split of the stages into groups with their own cores, and best split into groups that share
/// all cores: at most two, the faster first, each of two groups or more. Exact, at the cost of
/// [`solve`].
pub fn splits(costs: &[Cost], cores: usize) -> Vec<Allocation> {
    let mut best: [Option<Allocation>; 2] = [None, None];
    let mut consider = |candidate: Allocation| {
        let best = &mut best[usize::from(candidate.isolated)];
        if best.as_ref().is_none_or(|best| candidate.seconds < best.seconds * (1.0 - 1e-12)) {
            *best = Some(candidate);
        }
    };
    for grouping in groupings(costs.len()) {
        if grouping.len() == 1 {
            continue;
        }
        let shared: Vec<Group> =
            grouping.iter().map(|stages| Group { stages: stages.clone(), cores }).collect();
        let busy: f64 = costs.iter().map(|cost| cost.busy).sum::<f64>() / cores as f64;
        let slowest = shared.iter().map(|group| of_group(costs, group)).fold(busy, f64::max);
        consider(Allocation { groups: shared, isolated: false, seconds: slowest });
        shares(cores, grouping.len(), &mut |split| {
            let groups: Vec<Group> = grouping
                .iter()
                .zip(split)
                .map(|(stages, &cores)| Group { stages: stages.clone(), cores })
                .collect();
            let seconds = groups.iter().map(|group| of_group(costs, group)).fold(0.0, f64::max);
            consider(Allocation { groups, isolated: true, seconds });
        });
    }
    let mut best: Vec<Allocation> = best.into_iter().flatten().collect();
    best.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    best
}

/// Seconds per batch of stages that take turns.
fn of_group(costs: &[Cost], group: &Group) -> f64 {
    group.stages.iter().map(|&stage| costs[stage].seconds(group.cores)).sum()
}

/// All groupings of `n` stages, the fewest groups first.
fn groupings(n: usize) -> Vec<Vec<Vec<usize>>> {
    let mut all = vec![Vec::new()];
    for stage in 0..n {
        let mut next = Vec::new();
        for grouping in &all {
            for i in 0..grouping.len() {
                let mut grown: Vec<Vec<usize>> = grouping.clone();
                grown[i].push(stage);
                next.push(grown);
            }
            let mut grown = grouping.clone();
            grown.push(vec![stage]);
            next.push(grown);
        }
        all = next;
    }
    all.sort_by_key(Vec::len);
    all
}

/// Visits every division of `cores` cores among `groups` groups, at least one each.
fn shares(cores: usize, groups: usize, visit: &mut dyn FnMut(&[usize])) {
    fn give(left: usize, split: &mut Vec<usize>, groups: usize, visit: &mut dyn FnMut(&[usize])) {
        let missing = groups - split.len();
        if missing == 1 {
            split.push(left);
            visit(split);
            split.pop();
            return;
        }
        for cores in 1..=left - (missing - 1) {
            split.push(cores);
            give(left - cores, split, groups, visit);
            split.pop();
        }
    }
    if cores >= groups {
        give(cores, &mut Vec::with_capacity(groups), groups, visit);
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed;

    use super::*;

    fn parallel(seconds: f64) -> Cost {
        Cost { divided: seconds, fixed: 0.0, busy: seconds }
    }

    #[test]
    fn compute_bound_stages_share_all_cores() {
        // (1 + 4) / 2 in turns; with a core each, both would wait for the 4
        let one = solve(&[parallel(1.0), parallel(0.0), parallel(4.0)], 2);
        assert_eq!((one.groups.len(), one.seconds), (1, 2.5));
    }

    #[test]
    fn waiting_stages_run_beside_the_others() {
        let disk = Cost { divided: 0.1, fixed: 2.0, busy: 0.1 };
        let split = solve(&[parallel(1.0), disk, parallel(3.0)], 2);
        let stages: Vec<_> = split.groups.iter().map(|group| group.stages.clone()).collect();
        assert_eq!(stages, [vec![0, 2], vec![1]]);
        assert!(!split.isolated);
        // 0.05 + 2.0 of the disk beside 0.5 + 1.5 of the cores, which also do its 0.1
        assert_eq!(split.seconds, 2.05);
    }

    #[test]
    fn serial_stages_get_their_own_cores() {
        // a serial stage leaves all cores but one idle during its turn
        let serial = Cost { divided: 0.0, fixed: 1.0, busy: 1.0 };
        let split = solve(&[parallel(3.0), serial], 4);
        assert_eq!(split.seconds, 1.0);
        assert!(split.groups.len() == 2);
    }

    #[test]
    fn stages_share_a_single_core() {
        let wait = Cost { divided: 0.0, fixed: 3.0, busy: 0.0 };
        assert_eq!(solve(&[parallel(1.0), parallel(1.0)], 1).groups.len(), 1);
        assert_eq!(solve(&[parallel(1.0), wait], 1).seconds, 3.0);
    }

    /// Compares with an exhaustive search over the group of each stage and the cores of each group.
    #[test]
    fn the_optimum_is_exact() {
        for case in 0..200_u64 {
            let value = |i: u64| (keyed::key(&[case, i]) % 1000) as f64 / 100.0;
            let stages = 1 + (case % 4) as usize;
            let cores = 1 + (case % 7) as usize;
            let costs: Vec<Cost> = (0..stages as u64)
                .map(|i| Cost {
                    divided: value(3 * i),
                    fixed: value(3 * i + 1) / 4.0,
                    busy: value(3 * i + 2),
                })
                .collect();
            let alone: f64 = costs.iter().map(|cost| cost.seconds(cores)).sum();
            let mut least = f64::INFINITY;
            for code in 0..stages.pow(stages as u32) {
                let group_of: Vec<usize> =
                    (0..stages).map(|i| code / stages.pow(i as u32) % stages).collect();
                for split in 0..(cores + 1).pow(stages as u32) {
                    let cores_of: Vec<usize> =
                        (0..stages).map(|i| split / (cores + 1).pow(i as u32) % (cores + 1)).collect();
                    let used = |g: usize| group_of.contains(&g);
                    let groups: Vec<usize> = (0..stages).filter(|&g| used(g)).collect();
                    if groups.iter().any(|&g| cores_of[g] == 0) {
                        continue;
                    }
                    let of = |g: usize, c: usize| -> f64 {
                        (0..stages).filter(|&i| group_of[i] == g).map(|i| costs[i].seconds(c)).sum()
                    };
                    let slowest = groups.iter().map(|&g| of(g, cores_of[g])).fold(0.0, f64::max);
                    let total: usize = groups.iter().map(|&g| cores_of[g]).sum();
                    if total == cores {
                        least = least.min(slowest);
                    }
                    if groups.len() > 1 && groups.iter().all(|&g| cores_of[g] == cores) {
                        let busy = costs.iter().map(|cost| cost.busy).sum::<f64>() / cores as f64;
                        least = least.min(slowest.max(busy));
                    }
                }
            }
            let found = solve(&costs, cores);
            let expected = if least <= alone * MAX_SPLIT_TIME { least } else { alone };
            assert!((found.seconds - expected).abs() < 1e-9, "case {case}: {found:?}, {expected}");
        }
    }

    #[test]
    fn costs_are_fitted_through_both_measurements() {
        let cost = Cost::fit(1.0, 0.4, 4, 1.2);
        assert!((cost.seconds(1) - 1.0).abs() < 1e-12 && (cost.seconds(4) - 0.4).abs() < 1e-12);
        let slower = Cost::fit(1.0, 1.5, 2, 3.0);
        assert_eq!((slower.divided, slower.fixed), (0.0, 1.5));
    }
}
