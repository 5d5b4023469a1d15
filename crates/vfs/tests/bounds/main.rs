//! No request takes more than linear time in anything there is. A user made 60,000 attributes of one file in ten seconds;
//! listing them took 86, began again at each page that was not in memory, and kept all of them there; two at once stalled
//! the mount. A rename into a directory 12,000 levels deep took 27 s under the metadata write lock. Each request is asked
//! where there is much of something, at sizes ten times apart, and the pages that it looks at are counted: a machine's speed
//! does not matter. Every method of [`persimmon_vfs::Vfs`] must be in the tables below.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests from top to bottom"
)]

mod dimensions;
mod methods;
mod world;

use dimensions::DIMENSIONS;

fn measure(name: &str) {
    let dimension = DIMENSIONS.iter().find(|dimension| dimension.name == name);
    dimension.expect("a dimension of the table").measure();
}

macro_rules! measured {
    ($($test:ident $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                measure($name);
            }
        )*

        #[test]
        fn every_dimension_is_measured() {
            let measured = [$($name),*];
            assert!(DIMENSIONS.iter().map(|dimension| dimension.name).eq(measured));
        }
    };
}

measured! {
    many_entries_in_a_directory "entries",
    many_attributes_of_a_file "attributes",
    many_directories_above_one_another "depth",
    many_extents_of_a_file "extents",
    much_data_of_a_file "data",
    large_holes "holes",
    many_links_to_a_file "links",
    many_files_without_a_name "orphans",
    many_open_files "handles",
    many_locks_on_a_file "locks",
    many_snapshots "snapshots",
}
