// The functions of husk/generate.h.
#include <husk/detail/struct_size.h>

#include "text/generator.h"

using husk::null_argument;

struct husk_generator {
  husk::text::Generator generator;
};

husk_status husk_generator_create(husk_engine* engine, husk_program* program,
                                  const husk_generator_options* options, husk_generator** generator,
                                  husk_error* error) {
  if (!generator) return null_argument(error, "generator_create", ": generator");
  *generator = nullptr;
  if (!engine || !program) return null_argument(error, "generator_create");
  husk_generator_options all = HUSK_GENERATOR_OPTIONS_INIT;
  if (options) {
    HUSK_TRY(HUSK_CHECK_STRUCT(husk_generator_options, options, reuse_prefixes, error));
    husk::detail::read_struct(*options, &all);
  }
  return husk::text::make(generator, error, [&](husk_generator& created) {
    return created.generator.open(engine, program, all, error);
  });
}

void husk_generator_release(husk_generator* generator) { husk::text::destroy(generator); }

const husk_tokenizer* husk_generator_tokenizer(const husk_generator* generator) {
  return generator ? generator->generator.tokenizer() : nullptr;
}

husk_status husk_generator_chat(const husk_generator* generator, husk_chat** chat,
                                husk_error* error) {
  if (!chat) return null_argument(error, "generator_chat", ": chat");
  *chat = nullptr;
  if (!generator) return null_argument(error, "generator_chat", ": generator");
  return static_cast<husk_status>(generator->generator.chat(chat, error));
}

void husk_generator_recommend(const husk_generator* generator, husk_text_request* request) {
  if (!generator || !request || !HUSK_HAS_FIELD(request, top_p)) return;
  const husk::text::Sampling& sampling = generator->generator.recommended();
  request->temperature = sampling.temperature;
  request->top_k = sampling.top_k;
  request->top_p = sampling.top_p;
}

husk_status husk_generator_submit(husk_generator* generator, const husk_text_request* request,
                                  uint64_t* number, husk_error* error) {
  if (!generator || !request) return null_argument(error, "generator_submit");
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_text_request, request, user, error));
  husk_text_request all = HUSK_TEXT_REQUEST_INIT;
  husk::detail::read_struct(*request, &all);
  return static_cast<husk_status>(generator->generator.submit(all, number, error));
}

husk_status husk_generator_cancel(husk_generator* generator, uint64_t number, husk_error* error) {
  if (!generator) return null_argument(error, "generator_cancel");
  return static_cast<husk_status>(generator->generator.cancel(number, error));
}

husk_status husk_generator_step(husk_generator* generator, int32_t* more, husk_error* error) {
  if (!generator) return null_argument(error, "generator_step");
  return static_cast<husk_status>(generator->generator.step(more, error));
}

uint32_t husk_generator_adapter_count(const husk_generator* generator) {
  return generator ? static_cast<uint32_t>(generator->generator.adapters().count()) : 0;
}

husk_status husk_generator_set_adapter(husk_generator* generator, uint32_t adapter,
                                       const void* weights, size_t weight_bytes, const char* config,
                                       size_t config_bytes, husk_error* error) {
  if (!generator || !weights || !config) return null_argument(error, "generator_set_adapter");
  return static_cast<husk_status>(generator->generator.adapters().set(
      adapter, {static_cast<const char*>(weights), weight_bytes}, {config, config_bytes}, error));
}

husk_status husk_generator_remove_adapter(husk_generator* generator, uint32_t adapter,
                                          husk_error* error) {
  if (!generator) return null_argument(error, "generator_remove_adapter");
  return static_cast<husk_status>(generator->generator.adapters().remove(adapter, error));
}

husk_status husk_generator_embed(husk_generator* generator, const int32_t* tokens,
                                 size_t token_count, int32_t pooling, float* embedding,
                                 size_t capacity, size_t* count, husk_error* error) {
  if (!generator || !tokens || (!embedding && capacity)) {
    return null_argument(error, "generator_embed");
  }
  return static_cast<husk_status>(
      generator->generator.embed(tokens, token_count, pooling, embedding, capacity, count, error));
}

husk_status husk_generator_images_get(const husk_generator* generator, husk_text_images* out,
                                      husk_error* error) {
  if (!generator || !out) return null_argument(error, "generator_images_get");
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_text_images, out, width, error));
  const husk::text::ImageKind& kind = generator->generator.images();
  husk_text_images found = HUSK_TEXT_IMAGES_INIT;
  found.token = static_cast<int32_t>(kind.token);
  found.pixels = static_cast<uint64_t>(kind.pixels);
  found.rows = static_cast<uint64_t>(kind.rows);
  found.width = static_cast<uint64_t>(kind.width);
  husk::detail::write_struct(found, out);
  return HUSK_OK;
}

husk_status husk_generator_image(husk_generator* generator, const float* pixels, size_t pixel_count,
                                 float* rows, size_t capacity, husk_error* error) {
  if (!generator || !pixels || !rows) return null_argument(error, "generator_image");
  return static_cast<husk_status>(
      generator->generator.image(pixels, pixel_count, rows, capacity, error));
}

husk_status husk_generator_encoder_get(const husk_generator* generator, husk_text_encoder* out,
                                       husk_error* error) {
  if (!generator || !out) return null_argument(error, "generator_encoder_get");
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_text_encoder, out, features, error));
  const husk::text::EncoderKind& kind = generator->generator.encoder();
  husk_text_encoder found = HUSK_TEXT_ENCODER_INIT;
  found.positions = static_cast<uint64_t>(kind.positions);
  found.features = static_cast<uint64_t>(kind.features);
  husk::detail::write_struct(found, out);
  return HUSK_OK;
}

husk_status husk_generator_stats_get(husk_generator* generator, husk_generator_stats* out,
                                     husk_error* error) {
  if (!generator || !out) return null_argument(error, "generator_stats_get");
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_generator_stats, out, step_nanoseconds, error));
  husk::detail::write_struct(generator->generator.stats(), out);
  return HUSK_OK;
}
