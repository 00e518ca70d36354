use graphmill_data::atomic::{CrashingDisk, ForgettingDisk, WithoutExchange};

use super::*;
use crate::{
    TrainConfig,
    record::{EpochRecord, RunDir},
};

/// A checkpoint whose values are all `i`.
struct Made {
    model: Vec<f32>,
    moments: Vec<f32>,
    state: Position,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Position {
    epoch: u64,
    best: Option<f64>,
    note: String,
}

impl Made {
    fn new(i: u64) -> Self {
        let model = vec![i as f32; 4];
        let state =
            Position { epoch: i, best: (i > 0).then_some(0.1 + 0.2 * i as f64), note: "\"xxh3\": \"".into() };
        Self { model, moments: vec![-(i as f32); 2], state }
    }

    fn write(&self, disk: &mut impl Disk, dir: &Path) -> Result<()> {
        let model = [("conv.0.weight".to_string(), [2, 2], &self.model[..])];
        let best = [("conv.0.weight".to_string(), [2, 2], &self.model[..])];
        let best = if self.state.best.is_some() { &best[..] } else { &[] };
        let optimizer = [("0.m".to_string(), [1, 2], &self.moments[..])];
        let steps = self.state.epoch * 10;
        write(
            disk,
            dir,
            &Contents {
                model: &model,
                best,
                optimizer: &optimizer,
                optimizer_steps: steps,
                history: &[],
                state: &self.state,
            },
        )
    }
}

/// True if the platform can exchange directories.
const EXCHANGES: bool = cfg!(any(target_os = "linux", target_os = "macos"));

/// Ways to replace a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Replaced {
    ByExchange,
    ByRenames,
}

const WAYS: [Replaced; 2] = [Replaced::ByExchange, Replaced::ByRenames];

/// Saves the checkpoint `i` on a disk that crashes after `steps`; returns success.
fn save_killed(i: u64, steps: usize, dir: &Path, way: Replaced) -> bool {
    let disk = &mut CrashingDisk(steps);
    match way {
        Replaced::ByExchange => Made::new(i).write(disk, dir).is_ok(),
        Replaced::ByRenames => Made::new(i).write(&mut WithoutExchange(disk), dir).is_ok(),
    }
}

/// Number of the checkpoint in `dir`, if any. Panics if it is not equal to the one made with this
/// number.
fn loaded(dir: &Path) -> Option<u64> {
    let checkpoint = Checkpoint::<Position>::load(dir).expect("always loadable")?;
    assert_eq!(checkpoint.damage, None);
    let i = checkpoint.state.epoch;
    let made = Made::new(i);
    assert_eq!((&checkpoint.model[0].data[..], checkpoint.model[0].shape), (&made.model[..], [2, 2]));
    assert_eq!(checkpoint.model[0].name, "conv.0.weight");
    // the best model is always that of the state
    assert_eq!(checkpoint.best, checkpoint.model[..usize::from(i > 0)]);
    assert_eq!((&checkpoint.optimizer[0].data[..], checkpoint.optimizer_steps), (&made.moments[..], i * 10));
    assert_eq!(checkpoint.state, made.state);
    Some(i)
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Saves checkpoints 1, 2, ... of one run, each killed after the given number of steps, and checks
/// the invariants after each. Returns true if the last save was completed.
fn saves(way: Replaced, steps: &[usize]) -> bool {
    let run = tempfile::tempdir().unwrap();
    let dir = run.path().join("checkpoint");
    let (mut before, mut previous, mut done) = (None, None, false);
    for (i, &steps) in (1..).zip(steps) {
        previous = before;
        done = save_killed(i, steps, &dir, way);
        let now = loaded(&dir);
        let is_kept = dir.is_dir() || before.is_none();
        assert!(is_kept || way == Replaced::ByRenames || !EXCHANGES, "no directory in save {i} of {steps:?}");
        assert!(
            now == Some(i) || (now == before && !done),
            "{before:?}, then {now:?} in save {i} of {steps:?}"
        );
        before = now;
    }
    if done {
        // a completed save keeps the checkpoint before it, and nothing else
        let old = run.path().join("checkpoint.old");
        let kept = ["checkpoint", "checkpoint.old"].iter().take(1 + usize::from(previous.is_some()));
        assert!(entries(run.path()).iter().eq(kept), "left behind: {:?}", entries(run.path()));
        assert_eq!(previous.and_then(|_| loaded(&old)), previous);
    }
    done
}

#[test]
fn a_checkpoint_is_loadable_after_every_step() {
    for way in WAYS {
        // the first save ever
        (0..).find(|&first| saves(way, &[first]));
        // a killed save, followed by another killed save on its leftovers (a third of all pairs)
        for second in 0.. {
            (second % 3..).step_by(3).find(|&third| saves(way, &[usize::MAX, second, third]));
            if saves(way, &[usize::MAX, second]) {
                break;
            }
        }
    }
}

/// Saves two checkpoints on a disk that forgets, and checks every state that a loss of power could
/// leave; returns the states whose newest checkpoint is not whole. The one before it is no excuse.
fn losses(way: Replaced, disk: impl FnOnce(ForgettingDisk) -> ForgettingDisk) -> usize {
    let [run, scratch] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let dir = run.path().join("checkpoint");
    // the third save removes the first checkpoint, and keeps the second
    (1..3).for_each(|i| Made::new(i).write(&mut Real, &dir).unwrap());
    let mut disk = disk(ForgettingDisk::new(run.path()).unwrap());
    match way {
        Replaced::ByExchange => Made::new(3).write(&mut disk, &dir).unwrap(),
        Replaced::ByRenames => Made::new(3).write(&mut WithoutExchange(&mut disk), &dir).unwrap(),
    }
    let (mut lost, mut last) = (0, None);
    let see = &mut |state: &Path, _| {
        last = Checkpoint::<Position>::load(&state.join("checkpoint")).ok().flatten();
        lost += usize::from(last.as_ref().is_none_or(|last| last.damage.is_some()));
    };
    disk.losses(scratch.path(), see).unwrap();
    assert_eq!(last.map(|last| last.state.epoch), Some(3), "durable once the save returns");
    lost
}

#[test]
fn a_loss_of_power_leaves_the_old_or_the_new_checkpoint() {
    for way in WAYS {
        assert_eq!(losses(way, |disk| disk), 0);
        // without syncs it would not
        assert!(losses(way, ForgettingDisk::ignoring_syncs) > 0);
    }
}

/// The directory of a new run, with its missing parents, is as durable as its first checkpoint.
#[test]
fn a_loss_of_power_leaves_a_new_run_with_its_checkpoint() {
    let home = tempfile::tempdir().unwrap();
    let start = || {
        let run = RunDir::create(&home.path().join("runs/new")).unwrap();
        run.write_config(&TrainConfig::default()).unwrap();
        run.append_epoch(&EpochRecord { epoch: 1, ..EpochRecord::default() }).unwrap();
        Made::new(1).write(&mut Real, &run.checkpoint()).unwrap();
    };
    let disk = ForgettingDisk::record(home.path(), start).unwrap();
    assert!(disk.is_durable("runs").unwrap());
    assert!(!disk.ignoring_syncs().is_durable("runs").unwrap());
}

/// The lines of `metrics.jsonl` are durable before a checkpoint that counts them.
#[test]
fn a_loss_of_power_leaves_the_epochs_of_the_checkpoint() {
    let epochs_kept = |ignores_syncs: bool| {
        let [home, scratch] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let run = RunDir::create(&home.path().join("run")).unwrap();
        run.write_config(&TrainConfig::default()).unwrap();
        let mut disk = ForgettingDisk::new(run.path()).unwrap();
        if ignores_syncs {
            disk = disk.ignoring_syncs();
        }
        for epoch in 1..=2 {
            let record = EpochRecord { epoch, ..EpochRecord::default() };
            run.append_epoch_to(&mut disk, &record).unwrap();
            Made::new(epoch as u64).write(&mut disk, &run.checkpoint()).unwrap();
        }
        let (mut kept, mut last) = (true, None);
        let see = &mut |state: &Path, _| {
            let state = RunDir::open(state).unwrap();
            last = Checkpoint::<Position>::load(&state.checkpoint()).ok().flatten();
            let epochs = last.as_ref().map_or(0, |last| last.state.epoch as usize);
            kept &= state.truncate_epochs(epochs).is_ok_and(|records| records.len() == epochs);
        };
        disk.losses(scratch.path(), see).unwrap();
        assert_eq!(last.map(|last| last.state.epoch), Some(2), "durable once the save returns");
        kept
    };
    assert!(epochs_kept(false));
    // without syncs they would not be
    assert!(!epochs_kept(true));
}

/// A run that was killed in a save, and saves no more, keeps complete checkpoints alone, and a
/// finished one the newest.
#[test]
fn tidying_keeps_complete_checkpoints_and_foreign_files() {
    let mut finished = [false; 2];
    for (steps, way) in (0..).flat_map(|steps| WAYS.map(|way| (steps, way))) {
        let run = tempfile::tempdir().unwrap();
        let dir = run.path().join("checkpoint");
        Made::new(1).write(&mut Real, &dir).unwrap();
        fs::write(dir.join("mine"), "mine").unwrap();
        let done = save_killed(2, steps, &dir, way);
        let before = loaded(&dir);
        tidy(&dir).unwrap();
        assert_eq!(loaded(&dir), before);
        let names = entries(run.path());
        let complete = if dir.exists() { "checkpoint" } else { "checkpoint.old" };
        assert_eq!(fs::read(run.path().join(complete).join("mine")).unwrap(), b"mine");
        if complete == "checkpoint" {
            let old = run.path().join("checkpoint.old");
            assert!(names.iter().all(|name| !name.ends_with(".tmp")), "{names:?} after {steps} steps");
            assert!(!old.exists() || loaded(&old).is_some());
            forget_previous(&dir).unwrap();
            assert_eq!((entries(run.path()), loaded(&dir)), (vec!["checkpoint".to_string()], before));
            assert_eq!(fs::read(dir.join("mine")).unwrap(), b"mine");
        }
        finished[way as usize] = done;
        if finished == [true; 2] {
            break;
        }
    }
}

/// A checkpoint directory that is a link stays a link, and its target keeps foreign files.
#[cfg(unix)]
#[test]
fn a_linked_checkpoint_keeps_its_link_and_foreign_files_after_every_step() {
    use std::os::unix::fs::symlink;

    let mut finished = [false; 2];
    for (steps, way) in (0..).flat_map(|steps| WAYS.map(|way| (steps, way))) {
        let run = tempfile::tempdir().unwrap();
        let [dir, big] = ["run/checkpoint", "big"].map(|name| run.path().join(name));
        fs::create_dir(run.path().join("run")).unwrap();
        fs::create_dir(&big).unwrap();
        symlink("../big/ck", &dir).unwrap();
        let message = Checkpoint::<Position>::load(&dir).unwrap_err().to_string();
        assert!(
            message.contains("it is a symbolic link to") && message.contains("mount the disk"),
            "{message}"
        );
        Made::new(1).write(&mut Real, &dir).unwrap();
        fs::write(big.join("ck/notes.txt"), "mine").unwrap();
        fs::create_dir(big.join("ck/more")).unwrap();
        fs::write(big.join("ck/more/notes.txt"), "mine").unwrap();
        let done = save_killed(2, steps, &dir, way);
        let now = loaded(&dir).unwrap();
        assert!(now == 2 || (!done && now == 1), "{now} after {steps} steps");
        // the next save cleans up
        Made::new(3).write(&mut Real, &dir).unwrap();
        assert_eq!(loaded(&dir), Some(3));
        assert!(fs::symlink_metadata(&dir).unwrap().is_symlink());
        assert_eq!(
            (entries(&big), entries(&run.path().join("run"))),
            (vec!["ck".into(), "ck.old".into()], vec!["checkpoint".into()])
        );
        for file in ["notes.txt", "more/notes.txt"] {
            assert_eq!(fs::read(big.join("ck").join(file)).unwrap(), b"mine", "{file} after {steps} steps");
        }
        finished[way as usize] = done;
        if finished == [true; 2] {
            break;
        }
    }
}

#[cfg(unix)]
#[test]
fn links_beside_a_checkpoint_are_unlinked_and_their_targets_stay() {
    use std::os::unix::fs::symlink;

    for suffix in [".tmp", ".old"] {
        let run = tempfile::tempdir().unwrap();
        let [dir, thesis] = ["checkpoint", "thesis"].map(|name| run.path().join(name));
        fs::create_dir(&thesis).unwrap();
        fs::write(thesis.join("chapter"), "mine").unwrap();
        Made::new(1).write(&mut Real, &dir).unwrap();
        symlink(&thesis, atomic::suffixed(&dir, suffix)).unwrap();
        Made::new(2).write(&mut Real, &dir).unwrap();
        assert_eq!(loaded(&dir), Some(2));
        assert_eq!(entries(run.path()), ["checkpoint", "checkpoint.old", "thesis"]);
        assert_eq!(fs::read(thesis.join("chapter")).unwrap(), b"mine", "{suffix}");
    }
}

#[test]
fn a_run_killed_in_its_first_save_starts_clean() {
    for first in 0.. {
        assert!(saves(Replaced::ByExchange, &[first, usize::MAX]));
        if saves(Replaced::ByExchange, &[first]) {
            break;
        }
    }
}

#[test]
fn every_damaged_byte_is_an_error_that_names_the_file() {
    let run = tempfile::tempdir().unwrap();
    let dir = run.path().join("checkpoint");
    Made::new(7).write(&mut Real, &dir).unwrap();
    assert_eq!(entries(&dir), [BEST, MODEL, OPTIMIZER, STATE]);
    for name in [BEST, MODEL, OPTIMIZER, STATE] {
        let path = dir.join(name);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            for bytes in [&flipped[..], &whole[..at]] {
                fs::write(&path, bytes).unwrap();
                let message = Checkpoint::<Position>::load(&dir).unwrap_err().to_string();
                assert!(message.starts_with(&format!("{}: ", path.display())), "{message}");
                assert!(
                    message.ends_with("the file is damaged; restore the file from a copy, or train again"),
                    "{message}"
                );
            }
        }
        fs::remove_file(&path).unwrap();
        let message = Checkpoint::<Position>::load(&dir).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("missing"), "{message}");
        fs::write(&path, whole).unwrap();
    }
    assert_eq!(loaded(&dir), Some(7));
}

/// Flips a bit in the middle of a file, or cuts it there.
fn damage(path: &Path, cut: bool) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    if cut {
        bytes.truncate(middle)
    } else {
        bytes[middle] ^= 4
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_checkpoint_is_left_for_the_one_before_it() {
    let files_and_cuts = [BEST, MODEL, OPTIMIZER, STATE].map(|name| [(name, false), (name, true)]);
    for (name, cut) in files_and_cuts.into_iter().flatten() {
        let run = tempfile::tempdir().unwrap();
        let [dir, old] = ["checkpoint", "checkpoint.old"].map(|name| run.path().join(name));
        (1..4).for_each(|i| Made::new(i).write(&mut Real, &dir).unwrap());
        damage(&dir.join(name), cut);
        let found = Checkpoint::<Position>::load(&dir).unwrap().unwrap();
        let says = found.warning().unwrap();
        assert_eq!(found.state.epoch, 2);
        assert!(says.contains("checkpoint/") && says.contains(name) && says.contains("is damaged"), "{says}");
        // other ranks get the same one
        let (files, of_newer) = files(&dir).unwrap().unwrap();
        assert_eq!((of_newer, files.len()), (found.damage.clone(), 4));
        assert_eq!(Checkpoint::<Position>::of_files(&dir, &files).unwrap().state, found.state);
        let of_state = state::<Position>(&dir).unwrap().unwrap();
        assert_eq!(of_state.epoch, if name == STATE { 2 } else { 3 });
        // with both damaged, the error names both
        damage(&old.join(name), cut);
        let message = Checkpoint::<Position>::load(&dir).unwrap_err().to_string();
        for path in [dir.join(name), old.join(name)] {
            assert!(message.contains(&format!("{}: ", path.display())), "{message}");
        }
    }
}

#[test]
#[cfg(unix)]
fn a_checkpoint_that_the_disk_fails_to_read_is_left_for_the_one_before_it() {
    let run = tempfile::tempdir().unwrap();
    let dir = run.path().join("checkpoint");
    (1..3).for_each(|i| Made::new(i).write(&mut Real, &dir).unwrap());
    let read = |number: i32| {
        newest(&dir, |found| {
            let failed = || Error::io(found, "read", std::io::Error::from_raw_os_error(number));
            if found == dir { Err(failed()) } else { Ok(()) }
        })
    };
    let (_, damage) = read(5).unwrap().unwrap();
    assert!(damage.unwrap().contains("cannot read"));
    // a missing permission says nothing about the file
    assert!(read(13).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn damaged_models_of_the_newest_checkpoint_name_the_run_that_continues() {
    let run = tempfile::tempdir().unwrap();
    let [dir, old] = ["checkpoint", "checkpoint.old"].map(|name| run.path().join(name));
    (1..3).for_each(|i| Made::new(i).write(&mut Real, &dir).unwrap());
    let model = model_file(&dir).unwrap().unwrap();
    damage(&model, true);
    let says = "train --resume continues the run from the checkpoint before this one";
    assert!(load_params(&model).unwrap_err().to_string().ends_with(says));
    fs::remove_dir_all(&old).unwrap();
    assert!(load_params(&model).unwrap_err().to_string().ends_with("or train again"));
}

#[test]
fn the_checkpoint_before_a_damaged_one_takes_its_place_whatever_is_killed() {
    for steps in 0.. {
        let run = tempfile::tempdir().unwrap();
        let [dir, old] = ["checkpoint", "checkpoint.old"].map(|name| run.path().join(name));
        (1..3).for_each(|i| Made::new(i).write(&mut Real, &dir).unwrap());
        fs::write(dir.join("mine"), "mine").unwrap();
        damage(&dir.join(MODEL), false);
        let done = directory::reinstate_on(&mut CrashingDisk(steps), &dir).is_ok();
        let found = Checkpoint::<Position>::load(&dir).unwrap().unwrap();
        assert_eq!(found.state.epoch, 1, "after {steps} steps");
        if done {
            assert_eq!((loaded(&dir), old.exists()), (Some(1), false));
            Made::new(2).write(&mut Real, &dir).unwrap();
            assert_eq!((loaded(&dir), loaded(&old)), (Some(2), Some(1)));
            assert_eq!(fs::read(dir.join("mine")).unwrap(), b"mine");
            break;
        }
    }
}

#[test]
fn foreign_files_with_one_name_in_both_checkpoints_stay() {
    let run = tempfile::tempdir().unwrap();
    let [dir, old] = ["checkpoint", "checkpoint.old"].map(|name| run.path().join(name));
    (1..3).for_each(|i| Made::new(i).write(&mut Real, &dir).unwrap());
    fs::write(dir.join("mine"), "newer").unwrap();
    fs::write(old.join("mine"), "older").unwrap();
    Made::new(3).write(&mut Real, &dir).unwrap();
    assert_eq!((loaded(&dir), loaded(&old)), (Some(3), Some(2)));
    assert_eq!(fs::read(dir.join("mine")).unwrap(), b"newer");
    assert_eq!(fs::read(dir.join("mine.old")).unwrap(), b"older");
    // nor do they keep the checkpoint before from its place
    fs::write(old.join("mine"), "third").unwrap();
    damage(&dir.join(MODEL), false);
    reinstate(&dir).unwrap();
    assert_eq!((loaded(&dir), old.exists()), (Some(2), false));
    let mine = entries(&dir).into_iter().filter(|name| name.starts_with("mine"));
    let mut mine: Vec<String> = mine.map(|name| fs::read_to_string(dir.join(name)).unwrap()).collect();
    mine.sort();
    assert_eq!(mine, ["newer", "older", "third"]);
}

#[test]
fn checkpoints_of_other_versions_are_refused() {
    let run = tempfile::tempdir().unwrap();
    let dir = run.path().join("checkpoint");
    Made::new(1).write(&mut Real, &dir).unwrap();
    let path = dir.join(STATE);
    let written = fs::read_to_string(&path).unwrap();
    for (version, says) in [(9, "version 9 was written by a newer graphmill"), (1, "by an older graphmill")] {
        let text = written.replacen(": 2,", &format!(": {version},"), 1);
        let at = text.find("\"xxh3\": \"").unwrap() + 9;
        let blank = format!("{}{NO_CHECKSUM}{}", &text[..at], &text[at + 16..]);
        fs::write(&path, blank.replacen(NO_CHECKSUM, &checksum(blank.as_bytes()), 1)).unwrap();
        let message = Checkpoint::<Position>::load(&dir).unwrap_err().to_string();
        assert!(message.contains(says) && message.contains("train again"), "{message}");
    }
}

#[test]
fn numbers_of_the_state_read_back_with_their_bits() {
    // a resumed run equals the uninterrupted one only if every f64 of the state reads back exactly
    let run = tempfile::tempdir().unwrap();
    let dir = run.path().join("checkpoint");
    let mut stream = graphmill_core::keyed::Stream::new(7);
    let bits: Vec<f64> =
        (0..2000).map(|_| f64::from_bits(stream.next_u64())).filter(|x| x.is_finite()).collect();
    let counts = vec![u64::MAX, i64::MAX as u64 + 1, 0];
    save_tensors(&dir, &[], &[], &[], u64::MAX, &[], &(&bits, &counts)).unwrap();
    let back = Checkpoint::<(Vec<f64>, Vec<u64>)>::load(&dir).unwrap().unwrap();
    assert_eq!(
        back.state.0.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
        bits.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    );
    assert_eq!((back.state.1, back.optimizer_steps), (counts, u64::MAX));
}

mod of_a_model {
    use graphmill_core::options::OwnOptions;
    use graphmill_nn::{ModelConfig, optim};

    use super::*;

    fn model(hidden: usize, seed: u64) -> Model {
        let config = ModelConfig { hidden, norm: "batch".parse().unwrap(), ..ModelConfig::default() };
        Model::new(&config, 3, 2, seed).unwrap()
    }

    fn values(model: &Model) -> Vec<Vec<f32>> {
        let mut values = Vec::new();
        model.visit(&mut |_, param| values.push(param.value.view().host().to_vec()));
        values
    }

    /// An update with gradients of ones.
    fn update(model: &mut Model, optimizer: &mut dyn optim::Optimizer) {
        optimizer.begin(0.1);
        let mut index = 0;
        model.visit_mut(&mut |_, param| {
            param.grad.view_mut().host().fill(1.0);
            optimizer.update(&graphmill_nn::backend::Reference, index, param, 0.01);
            index += 1;
        });
    }

    #[test]
    fn restored_models_update_like_the_original() {
        let run = tempfile::tempdir().unwrap();
        let dir = run.path().join("checkpoint");
        for entry in &optim::TABLE {
            let make = || (entry.make)(&OwnOptions::default()).unwrap();
            let (mut whole, mut optimizer) = (model(4, 0), make());
            update(&mut whole, &mut *optimizer);
            update(&mut whole, &mut *optimizer);
            save(&dir, &whole, &[], &*optimizer, &[], &"here").unwrap();
            let (mut resumed, mut fresh) = (model(4, 1), make());
            assert_ne!(values(&resumed), values(&whole));
            let checkpoint = Checkpoint::<String>::load(&dir).unwrap().unwrap();
            checkpoint.restore(&mut resumed, &mut *fresh).unwrap();
            assert_eq!(checkpoint.state, "here");
            assert_eq!((values(&resumed), fresh.steps()), (values(&whole), 2));
            update(&mut whole, &mut *optimizer);
            update(&mut resumed, &mut *fresh);
            assert_eq!(values(&resumed), values(&whole), "{}", entry.name);
        }
    }

    #[test]
    fn errors_of_other_models_and_optimisers_name_the_tensor() {
        let run = tempfile::tempdir().unwrap();
        let (dir, best) = (run.path().join("checkpoint"), run.path().join("best.safetensors"));
        let mut adam = optim::by_name("adam", &OwnOptions::default()).unwrap();
        let mut sgd = optim::by_name("sgd", &OwnOptions::default()).unwrap();
        let mut trained = model(4, 0);
        update(&mut trained, &mut *adam);
        save(&dir, &trained, &[], &*adam, &[], &()).unwrap();
        save_model(&best, &trained).unwrap();
        let checkpoint = Checkpoint::<()>::load(&dir).unwrap().unwrap();

        let message = load_model(&best, &mut model(5, 0)).unwrap_err().to_string();
        assert!(
            message.contains("best.safetensors: tensor 'conv.0.") && message.contains("the model has"),
            "{message}"
        );
        let message = checkpoint.restore(&mut model(4, 0), &mut *sgd).unwrap_err().to_string();
        assert!(message.contains("optimizer.safetensors: tensor '0.velocity': missing"), "{message}");

        let mut loaded = model(4, 1);
        load_model(&best, &mut loaded).unwrap();
        assert_eq!(values(&loaded), values(&trained));
        load_model(&dir.join(MODEL), &mut loaded).unwrap();
        assert!(
            load_model(&run.path().join("none"), &mut loaded).unwrap_err().to_string().contains("missing")
        );
    }
}
