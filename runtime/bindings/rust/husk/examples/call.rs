//! Prints the nanoseconds that a run of the first function of an artifact takes: the median of 21
//! rounds of ROUND runs. Its inputs are tensors of f32, whose dimensions have their smallest sizes.
//!
//!   cargo run --release --example call -- FILE.husk ROUND

use std::time::Instant;

use husk::{Engine, Error, OpArg, Tensor, Value};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let (path, round) = match (arguments.next(), arguments.next().and_then(|n| n.parse().ok())) {
        (Some(path), Some(round)) => (path, round),
        _ => {
            eprintln!("usage: call FILE.husk ROUND");
            std::process::exit(2)
        }
    };
    // The file holds native code: open only files that you trust.
    let engine = unsafe { Engine::builder().allow_host_images() }.build()?;
    engine.add_op("test::scale", "x factor y:w", |_: &mut [OpArg<'_>]| Ok(()))?;
    let program = engine.open(path)?;
    let mut session = program.session()?;
    let sizes: Vec<Vec<usize>> = program
        .inputs(0)?
        .iter()
        .map(|info| info.ranges.iter().map(|range| range.0 as usize).collect())
        .collect();
    let ones: Vec<Vec<f32>> = sizes.iter().map(|sizes| vec![1.0; sizes.iter().product()]).collect();
    let mut times = Vec::new();
    for _ in 0..21 {
        let start = Instant::now();
        for _ in 0..round {
            // A caller makes its tensors anew for each run.
            let mut inputs = [Value::Int(0); 4];
            for (input, (ones, sizes)) in inputs.iter_mut().zip(ones.iter().zip(&sizes)) {
                *input = Value::Tensor(Tensor::new(ones, sizes)?);
            }
            session.run(0, &inputs[..sizes.len()])?;
        }
        times.push(start.elapsed().as_nanos() as f64 / f64::from(round));
    }
    times.sort_by(f64::total_cmp);
    println!("{:.0}", times[10]);
    Ok(())
}
