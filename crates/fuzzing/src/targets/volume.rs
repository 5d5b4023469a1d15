//! A whole volume, some of its structures damaged: it is opened, read, changed, closed, checked.

use crate::edit::damage;
use crate::input::Input;
use crate::sample::Sample;
use crate::usage::use_volume;

const DAMAGES_MAX: usize = 4;

pub fn volume(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sample = Sample::any(&mut input);
    let device = sample.device();
    for _ in 0..=input.below(DAMAGES_MAX) {
        damage(&device, sample, &mut input);
    }
    use_volume(device, &mut input);
}

pub fn seeds() -> Vec<Vec<u8>> {
    // No damage that matters, and many changes.
    (0..16u8)
        .map(|n| {
            let mut seed = vec![n & 3, 0, 7, n, 0, 0, 0, 0, n, 11];
            seed.extend((0..120u8).map(|i| i.wrapping_mul(n.wrapping_mul(2) | 1)));
            seed
        })
        .collect()
}
