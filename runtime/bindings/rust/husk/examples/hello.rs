//! Runs an exported model with ones as its inputs, and prints the first elements of each output.
//!
//!   cargo run --release --example hello -- build/mlp.husk

use husk::{Element, Engine, Error, Output, Tensor, Value, ValueKind};

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| {
        eprintln!("usage: hello FILE.husk");
        std::process::exit(2)
    });
    // The file holds native code: open only files that you trust.
    let engine = unsafe { Engine::builder().allow_host_images() }.build()?;
    let program = engine.open(path)?;
    let mut session = program.session()?;
    let infos = program.inputs(0)?;

    // Each dimension gets its smallest size.
    let sizes: Vec<Vec<usize>> = infos
        .iter()
        .map(|info| info.ranges.iter().map(|range| range.0 as usize).collect())
        .collect();
    let ones: Vec<Vec<f32>> = sizes.iter().map(|sizes| vec![1.0; sizes.iter().product()]).collect();
    let mut inputs = Vec::new();
    for (i, info) in infos.iter().enumerate() {
        println!("input {}: {:?} {:?} {:?}", info.name, info.kind, info.dtype, info.ranges);
        inputs.push(match info.kind {
            ValueKind::Tensor if info.dtype == Some(f32::DTYPE) => {
                Value::Tensor(Tensor::new(&ones[i], &sizes[i])?)
            }
            ValueKind::Tensor => {
                eprintln!("this example makes inputs of f32 only");
                std::process::exit(1)
            }
            ValueKind::Int => Value::Int(1),
            ValueKind::Float => Value::Float(1.0),
            ValueKind::Bool => Value::Bool(true),
        });
    }

    let outputs = session.run(0, &inputs)?;
    for i in 0..outputs.len() {
        match outputs.get(i)? {
            Output::Tensor(y) if y.dtype() == f32::DTYPE => {
                let elements = y.to_vec::<f32>()?;
                println!("output {}: {:?} {:?}", i, y.sizes(), &elements[..elements.len().min(8)]);
            }
            Output::Tensor(y) => println!("output {}: {} {:?}", i, y.dtype(), y.sizes()),
            Output::Int(value) => println!("output {}: {}", i, value),
            Output::Float(value) => println!("output {}: {}", i, value),
            Output::Bool(value) => println!("output {}: {}", i, value),
        }
    }
    Ok(())
}
