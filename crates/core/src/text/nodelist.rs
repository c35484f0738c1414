//! Node lists: `gpu-st-p5-[1-4,07-09],login1`. Names may contain dashes and digits themselves.

/// Largest number of names that a list is expanded to: a hostile `[0-99999999]` must not exhaust memory.
const MOST: usize = 65_536;
/// Longest item that is expanded, and largest number of brackets of one: Slurm's own limit of dimensions is
/// lower. An item that is longer, or whose numbers have too many digits, is not a node list and would expand
/// to gigabytes.
const LONGEST: usize = 32 * 1024;
const DIMENSIONS: usize = 8;
const DIGITS: usize = 20;
/// Longest name around a range of numbers.
const NAME: usize = 1024;

/// Expands a node list. Text that cannot be parsed is returned unchanged.
pub fn expand(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    for item in split_outside_brackets(list) {
        expand_item(item, DIMENSIONS, &mut names);
    }
    names
}

/// Returns the number of nodes of a list.
pub fn count(list: &str) -> usize {
    expand(list).len()
}

fn split_outside_brackets(list: &str) -> Vec<&str> {
    let (mut items, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                items.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(list[start..].trim());
    items.retain(|item| !item.is_empty());
    items
}

fn expand_item(item: &str, dimensions: usize, names: &mut Vec<String>) {
    if names.len() >= MOST {
        return;
    }
    let brackets = item.split_once('[').filter(|_| dimensions > 0 && item.len() <= LONGEST);
    let Some((prefix, rest)) = brackets else {
        names.push(item.to_owned());
        return;
    };
    let Some((ranges, suffix)) = rest.split_once(']') else {
        names.push(item.to_owned());
        return;
    };
    for range in ranges.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        if from.len() > DIGITS || prefix.len() + suffix.len() > NAME {
            names.push(item.to_owned());
            return;
        }
        let numbers = from.parse::<u64>().ok().zip(to.parse::<u64>().ok());
        let Some((first, last)) = numbers.filter(|(first, last)| first <= last) else {
            names.push(item.to_owned());
            return;
        };
        for number in first..=last {
            if names.len() >= MOST {
                return;
            }
            // A suffix may hold further brackets (`rack[1-2]node[1-4]`).
            expand_item(
                &format!("{prefix}{number:0width$}{suffix}", width = from.len()),
                dimensions - 1,
                names,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_lists_take_little_time_and_memory() {
        let zeros = format!("n[{}1-60000]", "0".repeat(1 << 20));
        let deep = "n[1]".repeat(100_000);
        let wide = "n[1-9]".repeat(40);
        let long = format!("{}[1-65536]", "x".repeat(20_000));
        for list in [zeros, deep, wide, long] {
            let names = super::expand(&list);
            assert!(names.len() <= super::MOST, "{}", names.len());
            assert!(names.iter().map(String::len).sum::<usize>() <= 100 << 20);
        }
    }

    #[test]
    fn brackets_padding_and_dashes() {
        assert_eq!(
            expand("compute-gpu-st-p5-[1-2,4]"),
            ["compute-gpu-st-p5-1", "compute-gpu-st-p5-2", "compute-gpu-st-p5-4"]
        );
        assert_eq!(expand("n[08-10],login1"), ["n08", "n09", "n10", "login1"]);
        assert_eq!(expand("r[1-2]n[1-2]"), ["r1n1", "r1n2", "r2n1", "r2n2"]);
        assert_eq!(expand(""), Vec::<String>::new());
    }

    #[test]
    fn nonsense_stays_and_huge_ranges_are_bounded() {
        assert_eq!(expand("a[x-y]"), ["a[x-y]"]);
        assert_eq!(expand("a[1-2"), ["a[1-2"]);
        assert_eq!(expand("a[9-1],b"), ["a[9-1]", "b"]);
        assert_eq!(count("a[0-99999999999]"), MOST);
    }
}
