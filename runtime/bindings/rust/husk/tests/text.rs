//! What the feature `text` does with a program that is no language model. tests/python/test_text.py
//! runs the example with one.
#![cfg(feature = "text")]

use husk::text::Generator;

#[test]
fn a_program_without_texts_is_refused() {
    let path = std::env::var("HUSK_TEST_PROGRAM").expect("HUSK_TEST_PROGRAM");
    let engine = husk::Engine::builder().build().unwrap();
    engine.add_op("test::scale", "x factor y:w", |_| Ok(())).unwrap();
    let error = Generator::new(&engine.open(path).unwrap()).err().unwrap();
    assert_eq!(error.status(), husk::Status::InvalidFile);
    assert!(error.text().contains("`python -m husk llm` exports one"), "{}", error);
}
