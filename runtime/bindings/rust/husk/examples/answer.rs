//! Answers one message with a language model: answer FILE.husk MESSAGE.
use husk::text::{Generator, Request};

fn main() -> Result<(), husk::Error> {
    let words: Vec<String> = std::env::args().collect();
    if words.len() != 3 {
        eprintln!("usage: answer FILE.husk MESSAGE");
        std::process::exit(2);
    }
    // The file holds native code: open only files that you trust.
    let engine = unsafe { husk::Engine::builder().allow_host_images() }.build()?;
    let mut generator = Generator::new(&engine.open(&words[1])?)?;
    let chat = generator.chat(&[("user", &words[2])])?;
    generator.submit(Request::chat(chat).on_part(|part| {
        print!("{}", part.text);
        true
    }))?;
    generator.run()?;
    println!();
    Ok(())
}
