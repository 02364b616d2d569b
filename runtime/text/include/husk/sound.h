/** @file
 * Sound for language models: the features that the encoder of a model of speech such as Whisper
 * takes.
 *
 * @code
 * husk_sound* sound;
 * husk_sound_create(json, bytes, &sound, &error);   // the entry husk.text.sound of a file
 * husk_sound_format format = HUSK_SOUND_FORMAT_INIT;
 * husk_sound_get(sound, &format, &error);
 * husk_sound_features(sound, samples, count, format.samples / format.hop, features, &error);
 * @endcode
 *
 * The library libhusk_text has these functions. A file that `python -m husk llm` has exported of a
 * checkpoint of Whisper with its `preprocessor_config.json` carries what they need in the entry
 * `husk.text.sound` of its metadata, which husk_program_metadata_value gives. `features` of a
 * husk_text_request (husk/generate.h) takes the result.
 *
 * Errors: a function that returns husk_status fills `error`, which may be NULL, if it fails.
 * Several threads may use one husk_sound at once. The header is C11 and C++17. */
#ifndef HUSK_SOUND_H
#define HUSK_SOUND_H

#include <husk/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a model takes sound. */
typedef struct husk_sound husk_sound;

/** What a model of speech expects. Minimum size: through `bins`. */
typedef struct husk_sound_format {
  uint32_t struct_size; /**< Set by the caller that passes the struct to be filled. */
  int32_t reserved;     /**< 0. */
  uint64_t rate;        /**< How many samples a second has. */
  uint64_t samples;     /**< How many samples the encoder takes at once. */
  uint64_t hop;         /**< How many samples lie between one column of features and the next. */
  uint64_t bins;        /**< How many rows the features have: the bands of frequencies. */
} husk_sound_format;
/** The initial value of a husk_sound_format. */
#define HUSK_SOUND_FORMAT_INIT {sizeof(husk_sound_format), 0, 0, 0, 0, 0}

/** Reads how a model takes sound.
 * @param json the entry `husk.text.sound` of a file, not used after the call
 * @param bytes the length of `json`
 * @param sound the result, NULL after a failure
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT; HUSK_INVALID_FILE if the text is no JSON or has a wrong
 * field, which the error names; or HUSK_OUT_OF_MEMORY */
HUSK_API husk_status husk_sound_create(const char* json, size_t bytes, husk_sound** sound,
                                       husk_error* error);
/** Releases it. NULL does nothing. */
HUSK_API void husk_sound_release(husk_sound* sound);
/** Writes to `out`, which is HUSK_SOUND_FORMAT_INIT on entry, what the model expects. Returns
 * HUSK_OK or HUSK_INVALID_ARGUMENT. */
HUSK_API husk_status husk_sound_get(const husk_sound* sound, husk_sound_format* out,
                                    husk_error* error);

/** Computes the log-mel spectrogram of a sound: for each column the energy in each band of
 * frequencies, as a logarithm.
 * @param sound is not changed
 * @param samples the sound, with one channel, from -1 to 1
 * @param count how many samples there are
 * @param columns how many columns to compute. Column i is around the sample i * hop. If columns *
 * hop is larger than `count`, zeros follow the sound
 * @param features memory for bins * columns numbers; row i has the columns of band i
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT; HUSK_INVALID_INPUT if a sample is not finite; or
 * HUSK_OUT_OF_MEMORY */
HUSK_API husk_status husk_sound_features(const husk_sound* sound, const float* samples,
                                         size_t count, size_t columns, float* features,
                                         husk_error* error);

#ifdef __cplusplus
}
#endif

#endif
