//! Entries of one directory in the order of their cookies, in 8 bytes each.

/// Places that lie together.
const RUN_PLACES: usize = 128;

/// Indexes of entries by counter.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Ascending, none of them empty.
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    /// No counter of it is below this one.
    base: u64,
    /// Ascending.
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// How far the counter lies above the base.
    above: u32,
    index: u32,
}

impl Run {
    fn new(counter: u64, index: u32) -> Self {
        Self {
            base: counter,
            places: vec![Place { above: 0, index }],
        }
    }

    /// Where a counter is in it, or would be; `None` if it is too far above.
    fn find(&self, counter: u64) -> Option<(u32, Result<usize, usize>)> {
        let above = u32::try_from(counter - self.base).ok()?;
        let place = self
            .places
            .binary_search_by_key(&above, |place| place.above);
        Some((above, place))
    }

    /// Its upper half as a run of its own.
    fn split(&mut self) -> Self {
        let upper = self.places.split_off(self.places.len() / 2);
        let first = upper.first().map_or(0, |place| place.above);
        let places = upper.into_iter().map(|place| Place {
            above: place.above - first,
            ..place
        });
        Self {
            base: self.base + u64::from(first),
            places: places.collect(),
        }
    }

    /// Lets counters from `base` on be in it, if none is too far above.
    fn lower(&mut self, base: u64) -> bool {
        let Ok(by) = u32::try_from(self.base - base) else {
            return false;
        };
        let highest = self.places.last().map_or(0, |place| place.above);
        let fits = self.places.len() < RUN_PLACES && highest.checked_add(by).is_some();
        if fits {
            self.base = base;
            for place in &mut self.places {
                place.above += by;
            }
        }
        fits
    }
}

impl Order {
    /// Puts an index at a counter.
    pub(crate) fn insert(&mut self, counter: u64, index: u32) {
        let Some(at) = self.run_of(counter) else {
            // Below all others.
            let first = self.runs.first_mut();
            return match first.is_some_and(|run| run.lower(counter)) {
                true => self.insert(counter, index),
                false => self.add_run(0, Run::new(counter, index)),
            };
        };
        let run = &mut self.runs[at];
        match run.find(counter) {
            Some((_, Ok(place))) => run.places[place].index = index,
            Some((above, Err(place))) if run.places.len() < RUN_PLACES => {
                run.places.insert(place, Place { above, index });
            }
            // The usual one is the next in order: what is full stays so.
            Some((_, Err(RUN_PLACES))) | None => self.add_run(at + 1, Run::new(counter, index)),
            Some((_, Err(_))) => {
                let upper = run.split();
                self.add_run(at + 1, upper);
                self.insert(counter, index);
            }
        }
    }

    pub(crate) fn remove(&mut self, counter: u64) {
        let Some(at) = self.run_of(counter) else {
            return;
        };
        let run = &mut self.runs[at];
        let Some((_, Ok(place))) = run.find(counter) else {
            return;
        };
        run.places.remove(place);
        if run.places.is_empty() {
            self.runs.remove(at);
        } else if run.places.len() * 4 < run.places.capacity() {
            run.places.shrink_to(run.places.len() * 2);
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Counter and index of all behind `counter`.
    pub(crate) fn after(&self, counter: u64) -> impl Iterator<Item = (u64, u32)> {
        let first = self.run_of(counter).unwrap_or(0);
        let places = self.runs[first..].iter().flat_map(|run| {
            let counted = |place: &Place| (run.base + u64::from(place.above), place.index);
            run.places.iter().map(counted)
        });
        places.skip_while(move |&(own, _)| own <= counter)
    }

    /// All indexes.
    pub(crate) fn values(&self) -> impl Iterator<Item = u32> {
        let places = self.runs.iter().flat_map(|run| &run.places);
        places.map(|place| place.index)
    }

    /// Bytes that so many entries of all directories take, about: most runs of
    /// large directories are full.
    pub(crate) const fn bytes_of(entries: usize) -> usize {
        entries * size_of::<Place>() + entries.div_ceil(RUN_PLACES) * size_of::<Run>()
    }

    /// The run in which a counter is, if it is anywhere.
    fn run_of(&self, counter: u64) -> Option<usize> {
        let behind = self.runs.partition_point(|run| run.base <= counter);
        behind.checked_sub(1)
    }

    fn add_run(&mut self, at: usize, run: Run) {
        if self.runs.is_empty() {
            self.runs.reserve_exact(1); // Most directories are small.
        }
        self.runs.insert(at, run);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Goal: entries that come in order fill their runs.
    #[test]
    fn ascending_entries_take_eight_bytes() {
        let mut order = Order::default();
        for counter in 3..10_003 {
            order.insert(counter, 0);
        }
        let places: usize = order.runs.iter().map(|run| run.places.capacity()).sum();
        assert!(places <= 10_000 + RUN_PLACES, "{places}");
    }

    proptest! {
        /// Goal: it is the map that it stands for, whatever comes and goes.
        #[test]
        fn it_is_an_ordered_map(
            steps in prop::collection::vec(
                (any::<bool>(), prop_oneof![0u64..600, 1u64 << 40..(1 << 40) + 300]),
                0..2000,
            ),
            from in 0u64..600,
        ) {
            let (mut order, mut model) = (Order::default(), BTreeMap::new());
            for (index, (comes, counter)) in (0..).zip(steps) {
                if comes {
                    order.insert(counter, index);
                    model.insert(counter, index);
                } else {
                    order.remove(counter);
                    model.remove(&counter);
                }
                prop_assert_eq!(order.is_empty(), model.is_empty());
            }
            for after in [0, from, (1 << 40) + from, u64::MAX] {
                let own: Vec<_> = order.after(after).collect();
                let known = model.range(after..).filter(|(counter, _)| **counter > after);
                prop_assert_eq!(own, known.map(|(&c, &i)| (c, i)).collect::<Vec<_>>());
            }
            prop_assert_eq!(order.values().count(), model.len());
        }
    }
}
