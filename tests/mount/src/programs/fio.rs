//! fio with verification of everything it wrote.

use anyhow::Result;

use crate::check::Place;
use crate::command::script;

super::programs!("fio": buffered_random_and_sequential, direct_and_asynchronous, mapped_and_synced);

fn verified(place: &Place, jobs: &str) -> Result<()> {
    std::fs::write(place.outside.join("jobs.fio"), jobs)?;
    let jobs = place.outside.join("jobs.fio");
    let text = r#"fio --output-format=terse "$JOBS" >&2; rm -f -- *"#;
    script(&place.dir, &[("JOBS", &jobs)], text).map(|_| ())
}

fn buffered_random_and_sequential(place: &Place) -> Result<()> {
    verified(
        place,
        "[global]\nverify=crc32c\nverify_fatal=1\nverify_dump=0\nsize=48m\nrandseed=7\n\
         [random-4k]\nrw=randwrite\nbs=4k\n\
         [random-mixed]\nrw=randrw\nbsrange=512-64k\nbs_unaligned=1\n\
         [sequential]\nrw=write\nbs=1m\nsize=128m\n\
         [twice]\nstonewall\nrw=randwrite\nbs=8k\nloops=2\n",
    )
}

fn direct_and_asynchronous(place: &Place) -> Result<()> {
    verified(
        place,
        "[global]\nverify=crc32c\nverify_fatal=1\nverify_dump=0\nsize=32m\ndirect=1\nioengine=libaio\niodepth=8\n\
         [random]\nrw=randwrite\nbs=4k\n\
         [large]\nrw=write\nbs=256k\nsize=64m\n\
         [mixed]\nrw=randrw\nbs=16k\n",
    )
}

fn mapped_and_synced(place: &Place) -> Result<()> {
    verified(
        place,
        "[global]\nverify=crc32c\nverify_fatal=1\nverify_dump=0\nsize=16m\n\
         [mapped]\nioengine=mmap\nrw=randwrite\nbs=4k\n\
         [fsynced]\nrw=randwrite\nbs=4k\nsize=4m\nfsync=16\n\
         [fdatasynced]\nrw=write\nbs=4k\nsize=4m\nfdatasync=8\n\
         [o-sync]\nrw=write\nbs=16k\nsize=4m\nsync=1\n",
    )
}
