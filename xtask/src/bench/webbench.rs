//! Sizes of files as WebBench 4.1 asked for them (SPIRAL, tables 3 and 5).

/// Sizes, and their parts of all requests in percent as they are printed. They add up to
/// 98: loads divide by the sum.
const SIZES: [(u64, f64); 10] = [
    (223, 20.0),
    (735, 8.0),
    (1522, 12.0),
    (2895, 20.0),
    (6040, 14.0),
    (11_426, 16.0),
    (22_132, 7.0),
    (41_518, 0.8),
    (87_360, 0.1),
    (541_761, 0.1),
];
/// One half of the requests for the largest files is for films then.
const FILM: (u64, f64) = (32 << 20, 0.05);
/// How many films there are.
const FILMS: usize = 2;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// Table 3.
    Small,
    /// Table 5: films too, one request in 2,000.
    Films,
}

/// Classes for the load generator, with so many files of each size but films.
pub(super) fn classes(mix: Mix, files: usize) -> Vec<String> {
    let mut sizes = SIZES;
    if mix == Mix::Films {
        sizes[SIZES.len() - 1].1 -= FILM.1;
    }
    let class = |count: usize, (bytes, part): (u64, f64)| {
        format!("prefix=w{bytes}-,count={count},size={bytes},weight={part}")
    };
    let films = (mix == Mix::Films).then(|| class(FILMS, FILM));
    let sizes = sizes.into_iter().map(|one| class(files, one));
    sizes.chain(films).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the tables are those of the paper, and films take from the largest files alone.
    #[test]
    fn films_take_half_of_the_largest() {
        let small = classes(Mix::Small, 20);
        let films = classes(Mix::Films, 20);
        assert_eq!(small[..9], films[..9]);
        assert_eq!(small[9], "prefix=w541761-,count=20,size=541761,weight=0.1");
        assert_eq!(films[9], "prefix=w541761-,count=20,size=541761,weight=0.05");
        assert_eq!(
            films[10],
            "prefix=w33554432-,count=2,size=33554432,weight=0.05"
        );
        assert_eq!((small.len(), films.len()), (10, 11));
    }
}
