/** @file
 * Opens artifacts whose weights lie beside them.
 *
 * `husk.export(..., weights="beside")` and `huskc --weights beside` write the constants of a model
 * to a safetensors file in the folder of the artifact. The hash of its content names the file, so
 * artifacts with equal weights share it, and a device that has the file gets a new artifact without
 * it. The function is in libhusk_ops. The header is C11 and C++17. */
#ifndef HUSK_WEIGHTS_H
#define HUSK_WEIGHTS_H

#include <husk/husk.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Opens an artifact as husk_program_open does, and maps the file of its weights if they lie beside
 * it. The size of that file and the hash of its header are checked; its tensors are compared with
 * their hashes if husk_engine_options.verify_content is set. Neither file may change while the
 * program exists.
 * @param engine the engine; the program keeps it; any thread may call
 * @param path the path of the artifact
 * @param folder the folder with the file of weights; NULL: the file lies in the folder of `path`,
 * or of the file that `path` links to. It is not used if the artifact has its weights inside.
 * @param program the result, NULL after a failure; husk_program_release drops it
 * @param error may be NULL
 * @return HUSK_OK; HUSK_IO if a file is missing or cannot be mapped; HUSK_INVALID_FILE if the file
 * of weights is truncated, damaged or another one; or the failures of husk_program_open */
HUSK_API husk_status husk_weights_open(husk_engine* engine, const char* path, const char* folder,
                                       husk_program** program, husk_error* error);

#ifdef __cplusplus
}
#endif

#endif
