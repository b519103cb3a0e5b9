//! What clients do next: requests that the model can tell the results of.

use crossdock_sim::random::Random;

use super::acts::Act;
use super::model::{CELLS_MAX, File, Model, NameKey};

/// Names of a directory.
const NAMES: u64 = 5;

/// A request that can be made now, unless the draw fell on one that cannot.
pub(super) fn draw(model: &mut Model, random: &mut Random) -> Option<Act> {
    match random.below(20) {
        0..3 => {
            let name = draw_name(model, random);
            let is_free = !model.names.contains_key(&name) && !model.locked.contains(&name);
            let is_directory = random.one_in(6);
            is_free.then_some(Act::Create { name, is_directory })
        }
        3 => {
            let name = draw_name(model, random);
            is_idle(model, name).then_some(Act::Remove { name })
        }
        4 => draw_rename(model, random),
        kind => draw_on_file(model, random, kind),
    }
}

/// A request that only looks, unless the draw fell on one that cannot be made now.
pub(super) fn draw_look(model: &Model, random: &mut Random) -> Option<Act> {
    let kind = random.below(8);
    if kind < 4 {
        let name = draw_name(model, random);
        return (!model.locked.contains(&name)).then_some(Act::Look { name });
    }
    let files = model.files.iter().filter(|(_, file)| !file.is_locked);
    let files: Vec<usize> = files.map(|(&number, _)| number).collect();
    let file = *random.pick(&files)?;
    let state = &model.files[&file];
    let size_low = state.sizes().0;
    if kind < 6 && !state.is_directory {
        return Some(Act::Stat { file, size_low });
    }
    let is_small = random.coin();
    let cells = draw_cells(random, is_small);
    let can_read = !state.is_directory && state.can_use(&cells, false);
    can_read.then_some(Act::Read {
        file,
        cells,
        size_low,
    })
}

fn draw_name(model: &Model, random: &mut Random) -> NameKey {
    let number = u8::try_from(random.below(NAMES)).unwrap_or(0);
    (random.index(model.directories.len()), number)
}

/// Whether the name is there and nothing is under way about what it names.
fn is_idle(model: &Model, name: NameKey) -> bool {
    let file = model
        .names
        .get(&name)
        .and_then(|file| model.files.get(file));
    !model.locked.contains(&name) && file.is_some_and(File::can_lock)
}

fn draw_rename(model: &Model, random: &mut Random) -> Option<Act> {
    let source = draw_name(model, random);
    let target = draw_name(model, random);
    let kind = |name| Some(model.files.get(model.names.get(&name)?)?.is_directory);
    let can_replace = match model.names.contains_key(&target) {
        true => is_idle(model, target) && kind(source) == kind(target),
        false => !model.locked.contains(&target),
    };
    (source != target && is_idle(model, source) && can_replace)
        .then_some(Act::Rename { source, target })
}

fn draw_on_file(model: &mut Model, random: &mut Random, kind: u64) -> Option<Act> {
    let files: Vec<usize> = model
        .files
        .iter()
        .filter(|(_, file)| !file.is_directory && !file.is_locked)
        .map(|(&number, _)| number)
        .collect();
    let file = *random.pick(&files)?;
    let state = &model.files[&file];
    match kind {
        5..12 => {
            let cells = draw_cells(random, kind < 9);
            let is_stable = random.one_in(3);
            state.can_use(&cells, true).then(|| Act::Write {
                file,
                cells,
                tag: model.tag(),
                is_stable,
            })
        }
        12..14 => {
            let cells = match random.below(3) {
                0 => 0,
                1 => random.index(100),
                _ => random.index(CELLS_MAX),
            };
            state.can_lock().then_some(Act::Truncate { file, cells })
        }
        14..17 => {
            let is_small = random.coin();
            let cells = draw_cells(random, is_small);
            let size_low = state.sizes().0;
            state.can_use(&cells, false).then_some(Act::Read {
                file,
                cells,
                size_low,
            })
        }
        _ => {
            let unstable = state.unstable();
            Some(Act::Commit { file, unstable })
        }
    }
}

/// Some cells: near the beginning, around the threshold, or anywhere.
fn draw_cells(random: &mut Random, is_small: bool) -> std::ops::Range<usize> {
    let length = match is_small {
        true => 1 + random.index(6),
        false => 1 + random.index(320),
    };
    let start_max = match random.below(3) {
        0 => 10,
        1 => 80,
        _ => CELLS_MAX,
    };
    let start = random.index(start_max).min(CELLS_MAX - length);
    start..start + length
}
