//! Runs mlp.husk on the CPU, as examples/hello does in C: four rows of 32 numbers, and for each
//! row the ten numbers that the model returns.
//!
//!   cargo run --release -- ../../build/mlp.husk

use husk::{Engine, Error, Tensor};

fn main() -> Result<(), Error> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "mlp.husk".to_string());
    // The file holds native code: open only files that you trust.
    let engine = unsafe { Engine::builder().allow_host_images() }.build()?;
    let program = engine.open(path)?;
    let mut session = program.session()?;

    let x: Vec<f32> = (0..4 * 32).map(|i| 0.01 * i as f32).collect();
    let outputs = session.run(0, &[Tensor::new(&x, &[4, 32])?.into()])?;
    let y = outputs.tensor(0)?;
    for row in y.as_slice::<f32>()?.chunks(y.sizes()[1] as usize) {
        let texts: Vec<String> = row.iter().map(|number| format!("{:7.4}", number)).collect();
        println!(" {}", texts.join(" "));
    }
    Ok(())
}
