//! What the feature `text` does with files that have an encoder, with sound, and with a program
//! that is no language model. tests/python/test_text_programs.py runs the example with a decoder
//! alone.
#![cfg(feature = "text")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use husk::sound::Sound;
use husk::text::{Encoder, Generator, Request};
use husk::{Error, Status};

#[test]
fn a_program_without_texts_is_refused() {
    let path = std::env::var("HUSK_TEST_PROGRAM").expect("HUSK_TEST_PROGRAM");
    let engine = husk::Engine::builder().build().unwrap();
    engine.add_op("test::scale", "x factor y:w", |_| Ok(())).unwrap();
    let program = engine.open(path).unwrap();
    let error = Generator::new(&program).err().unwrap();
    assert_eq!(error.status(), Status::InvalidFile);
    assert!(error.text().contains("`python -m husk llm` exports one"), "{}", error);
    let error = Sound::of(&program).err().unwrap();
    assert_eq!(error.status(), Status::Unsupported);
}

/// A file that husk_text_models has written.
fn generator(name: &str) -> Generator {
    let engine = unsafe { husk::Engine::builder().allow_host_images() }.build().unwrap();
    let program = engine.open(folder().join(format!("{name}.husk"))).unwrap();
    Generator::new(&program).unwrap()
}

fn folder() -> PathBuf {
    std::env::var("HUSK_TEST_MODELS").expect("HUSK_TEST_MODELS").into()
}

fn numbers(text: &str) -> Vec<i32> {
    text.split(' ').filter(|one| !one.is_empty()).map(|one| one.parse().unwrap()).collect()
}

fn tokens_of(generator: &mut Generator, request: Request) -> Result<Vec<i32>, Error> {
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let shared = tokens.clone();
    generator.submit(request.on_part(move |part| {
        shared.lock().unwrap().extend(part.token);
        true
    }))?;
    generator.run()?;
    let found = tokens.lock().unwrap().clone();
    Ok(found)
}

/// Sources of tokens and of features, with the decoder's own beginning and with another one.
#[test]
fn texts_of_encoders_are_right() {
    let rows = std::fs::read_to_string(folder().join("texts.txt")).unwrap();
    let mut count = 0;
    for kind in ["tokens", "features"] {
        let mut generator = generator(kind);
        for row in rows.lines().map(|row| row.split('|').collect::<Vec<_>>()) {
            let (name, source, decoder, right) = (row[0], row[1], row[2], row[3]);
            if name != kind {
                continue;
            }
            let source = numbers(source);
            let mut request = match kind {
                "tokens" => Request::tokens(source),
                _ => Request::features(source.iter().map(|&one| one as f32).collect::<Vec<_>>()),
            };
            request.decoder_tokens = numbers(decoder);
            request.max_new_tokens = 12;
            assert_eq!(tokens_of(&mut generator, request).unwrap(), numbers(right), "{row:?}");
            count += 1;
        }
    }
    assert_eq!(count, 12);
}

#[test]
fn a_file_says_what_its_encoder_takes() {
    assert_eq!(generator("tokens").encoder(), Some(Encoder::Tokens(70)));
    assert_eq!(generator("features").encoder(), Some(Encoder::Features(12)));
}

#[test]
fn wrong_input_of_an_encoder_is_refused() {
    let mut generator = generator("features");
    for (features, expected) in [(vec![1.0; 11], "12 numbers"), (vec![f32::NAN; 12], "not finite")]
    {
        let error = tokens_of(&mut generator, Request::features(features)).err().unwrap();
        assert_eq!(error.status(), Status::InvalidInput);
        assert!(error.text().contains(expected), "{}", error);
    }
    let error = tokens_of(&mut generator, Request::tokens([1, 2])).err().unwrap();
    assert!(error.text().contains("decoder_tokens"), "{}", error);
}

/// A window of four samples and the band of the frequency 0: the energy of the mean.
#[test]
fn features_of_sound_are_logarithms_of_energies() {
    let json = r#"{"rate":8,"samples":8,"window":4,"hop":2,"filters":[[0,1],[1,0.5]]}"#;
    let sound = Sound::new(json).unwrap();
    assert_eq!((sound.rate, sound.samples, sound.hop, sound.bins), (8, 8, 2, 2));
    let found = sound.features(&[0.5; 8], 4).unwrap();
    assert_eq!(found.len(), 8);
    // The window is 0, 0.5, 1, 0.5, whose transform has 2 and -1 at the frequencies 0 and 1.
    for (one, energy) in found.iter().zip([1.0f32, 1.0, 1.0, 1.0, 0.125, 0.125, 0.125, 0.125]) {
        assert!((one - (energy.log10() + 4.0) / 4.0).abs() < 1e-6, "{found:?}");
    }
    assert_eq!(sound.features(&[], 0).unwrap(), []);
    let error = sound.features(&[f32::INFINITY], 4).err().unwrap();
    assert_eq!(error.status(), Status::InvalidInput);
    assert!(sound.features(&[], usize::MAX / 2).is_err());
    let error = Sound::new("{}").err().unwrap();
    assert!(error.text().contains("`rate`"), "{}", error);
}
