//! Features of sound for language models, with libhusk_text: the feature `text` of this crate.
//!
//! ```no_run
//! # fn main() -> Result<(), husk::Error> {
//! # let engine = unsafe { husk::Engine::builder().allow_host_images() }.build()?;
//! use husk::{sound::Sound, text};
//! let program = engine.open("whisper-tiny.husk")?;
//! let sound = Sound::of(&program)?;
//! let columns = sound.samples / sound.hop;
//! let features = sound.features(&[0.0; 16000], columns)?; // a second of silence
//! let mut generator = text::Generator::new(&program)?;
//! let text = generator.generate(text::Request::features(features))?;
//! # Ok(())
//! # }
//! ```

use std::mem::size_of;
use std::ptr::null_mut;

use husk_sys::*;

use crate::error::{check, Error, Status};
use crate::program::Program;

/// How a model takes sound.
pub struct Sound {
    handle: *mut husk_sound,
    /// How many samples a second has.
    pub rate: usize,
    /// How many samples the encoder takes at once.
    pub samples: usize,
    /// How many samples lie between one column of features and the next.
    pub hop: usize,
    /// How many rows the features have.
    pub bins: usize,
}

// Nothing changes after the call that makes it, and the library has no state of a thread.
unsafe impl Send for Sound {}
unsafe impl Sync for Sound {}

impl Drop for Sound {
    fn drop(&mut self) {
        unsafe { husk_sound_release(self.handle) };
    }
}

impl Sound {
    /// Reads the entry `husk.text.sound` of a program's metadata.
    pub fn of(program: &Program) -> Result<Sound, Error> {
        match program.metadata().iter().find(|(key, _)| *key == "husk.text.sound") {
            Some((_, json)) => Sound::new(json),
            None => {
                Err(Error::new(Status::Unsupported, "the file does not say how it takes sound"))
            }
        }
    }
    /// Reads the content of such an entry.
    pub fn new(json: &str) -> Result<Sound, Error> {
        let mut handle = null_mut();
        check(|error| unsafe {
            husk_sound_create(json.as_ptr().cast(), json.len(), &mut handle, error)
        })?;
        let mut sound = Sound { handle, rate: 0, samples: 0, hop: 0, bins: 0 };
        let mut format: husk_sound_format = unsafe { std::mem::zeroed() };
        format.struct_size = size_of::<husk_sound_format>() as u32;
        check(|error| unsafe { husk_sound_get(handle, &mut format, error) })?;
        sound.rate = format.rate as usize;
        sound.samples = format.samples as usize;
        sound.hop = format.hop as usize;
        sound.bins = format.bins as usize;
        Ok(sound)
    }
    /// The log-mel spectrogram of samples of one channel, from -1 to 1: `bins` rows with so many
    /// columns. Zeros follow a sound that is shorter.
    pub fn features(&self, samples: &[f32], columns: usize) -> Result<Vec<f32>, Error> {
        let count =
            self.bins.checked_mul(columns).filter(|&count| count <= isize::MAX as usize / 4);
        let count = count.ok_or_else(|| Error::new(Status::InvalidArgument, "too many columns"))?;
        let mut features = vec![0.0; count];
        check(|error| unsafe {
            let (from, to) = (samples.as_ptr(), features.as_mut_ptr());
            husk_sound_features(self.handle, from, samples.len(), columns, to, error)
        })?;
        Ok(features)
    }
}
