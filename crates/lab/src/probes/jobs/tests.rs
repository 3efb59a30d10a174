use super::*;

fn shape() -> Shape {
    Shape {
        rw: ReadWrite::Rw,
        block: Bytes(65_536),
        iodepth: 32,
        ioengine: ShapeEngine::IoUring,
        numjobs: 4,
        uncached: true,
        on: On::File,
        cache: Bytes(80 << 20),
        dirty: Some(Bytes(64 << 20)),
        background: Some(Bytes(32 << 20)),
        beside: SyncProbe::Off,
    }
}

const EXTENT: Extent = Extent { file_bytes: 1 << 30, seconds: 1.5 };

#[test]
fn a_job_is_what_the_shape_says() {
    let workload = shape().workload(Arm::KernelUncached, EXTENT);
    assert_eq!((workload.jobs.len(), workload.devices), (4, Devices::Refuse));
    let job = &workload.jobs[3];
    assert_eq!((job.depth, job.io_engine, job.caching), (32, IoEngine::Ring, Caching::Uncached));
    assert_eq!((job.runtime_us, job.time_based), (Some(1_500_000), YesNo::Yes));
    assert_eq!(job.create, Create::Before, "there has to be something to read");
    let device = Shape { on: On::Device, ..shape() };
    let large = device.workload(Arm::KernelDirect1m, EXTENT);
    assert_eq!((large.jobs[0].blocks.write.max(), large.jobs[0].depth), (1 << 20, 4));
    assert_eq!(large.devices, Devices::Write);
}

#[test]
fn memory_shrinks_together_and_stays_possible() {
    let half = shape().with_memory(0.5);
    assert_eq!((half.cache.0, half.dirty.unwrap().0), (40 << 20, 32 << 20));
    let least = shape().with_memory(0.001);
    assert_eq!((least.cache.0, least.dirty.unwrap().0), (8 << 20, 4 << 20));
    assert_eq!(shape().budget_bytes(Arm::KernelBounded), 64 << 20);
    assert_eq!(shape().budget_bytes(Arm::Forebay), 80 << 20);
    for part in [1.0, 0.3, 0.01] {
        let shape = shape().with_memory(part);
        let cache_bytes = Some(shape.cache.0);
        let mut options = forebay::Options { cache_bytes, ..Default::default() };
        for (name, value) in shape.knobs() {
            options.set(&name, &value).unwrap();
        }
        forebay::Engine::start(options).unwrap();
    }
}

#[test]
fn nothing_is_allocated_ahead_on_a_device() {
    let device = Shape { on: On::Device, ..shape() };
    assert!(!device.suits(Arm::ForebayDeclared) && !device.suits(Arm::KernelDirectPrealloc));
    assert!(device.suits(Arm::KernelDirect1m) && device.suits(Arm::Forebay));
    assert!(shape().suits(Arm::KernelDirectPrealloc));
}
