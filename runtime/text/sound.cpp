// The functions of husk/sound.h.
#include <math.h>

#include <husk/detail/struct_size.h>
#include <husk/sound.h>

#include "text/json.h"

using husk::fail;
using husk::null_argument;
using husk::Status;
using namespace husk::text;  // NOLINT: the C functions below are those of this namespace

namespace {

constexpr double kMost = 1 << 30;     // of the numbers of samples, and of factors
constexpr double kMostWindow = 8192;  // samples that one transform takes
constexpr double kFloor = 1e-10;      // the least energy of a band
constexpr double kRange = 8;          // decades below the loudest band that count
constexpr double kTau = 6.283185307179586;

struct Complex {
  double real, imaginary;
};

// A band of frequencies: the factors of the energies from the frequency `first` on.
struct Band {
  size_t first, begin, count;  // its factors are those from `begin` on
};

Status wrong_sound(husk_error* error, const char* name) {
  return fail(error, HUSK_INVALID_FILE,
              "the metadata husk.text.sound has a wrong `%s`: export the model again", name);
}

size_t smallest_factor(size_t number) {
  size_t factor = 2;
  while (number % factor && factor * factor <= number) ++factor;
  return number % factor ? number : factor;
}

}  // namespace

struct husk_sound {
 public:
  Status read(Span text, husk_error* error);
  Status features(const float* samples, size_t count, size_t columns, float* to,
                  husk_error* error) const;

  size_t rate = 0, samples = 0, hop = 0;
  List<Band> bands;

 private:
  Status read_bands(const Json& json, husk_error* error);
  Status compute_tables(husk_error* error);
  void transform(const double* in, size_t count, size_t stride, Complex* out, Complex* terms) const;

  size_t size_ = 0;       // of the window, in samples
  List<double> factors_;  // of all bands
  List<double> window_;   // the factors of the samples
  List<Complex> turns_;   // exp(-i tau k / size) for each k
};

Status husk_sound::read(Span text, husk_error* error) {
  Json json;
  HUSK_TRY(json.parse(text, error));
  const struct {
    const char* name;
    double most;
    size_t* to;
  } fields[] = {{"rate", kMost, &rate},
                {"samples", kMost, &samples},
                {"hop", kMost, &hop},
                {"window", kMostWindow, &size_}};
  for (const auto& field : fields) {
    const JsonValue* found = json.member(json.root(), field.name);
    const int64_t number = found ? whole(*found, field.most) : 0;
    if (number < 1) return wrong_sound(error, field.name);
    *field.to = static_cast<size_t>(number);
  }
  HUSK_TRY(read_bands(json, error));
  return compute_tables(error);
}

Status husk_sound::read_bands(const Json& json, husk_error* error) {
  const JsonValue* list = json.member(json.root(), "filters");
  if (!list || list->kind != JsonKind::array || list->number < 1) {
    return wrong_sound(error, "filters");
  }
  const size_t frequencies = size_ / 2 + 1;
  for (const JsonValue* row = json.first(list); row != json.end(list); row = json.after(row)) {
    if (row->kind != JsonKind::array || row->number < 1) return wrong_sound(error, "filters");
    const JsonValue* one = json.first(row);
    const int64_t first = whole(*one, kMostWindow);
    const Band band = {static_cast<size_t>(first), factors_.size(),
                       static_cast<size_t>(row->number) - 1};
    if (first < 0 || band.first + band.count > frequencies) return wrong_sound(error, "filters");
    for (one = json.after(one); one != json.end(row); one = json.after(one)) {
      const bool is_factor = one->kind == JsonKind::number && one->number >= 0 &&
                             one->number <= kMost;
      if (!is_factor) return wrong_sound(error, "filters");
      HUSK_TRY(factors_.push(one->number, error));
    }
    HUSK_TRY(bands.push(band, error));
  }
  return Status::ok;
}

Status husk_sound::compute_tables(husk_error* error) {
  HUSK_TRY(window_.resize(size_, error));
  HUSK_TRY(turns_.resize(size_, error));
  for (size_t i = 0; i < size_; ++i) {
    const double angle = kTau * static_cast<double>(i) / static_cast<double>(size_);
    window_[i] = 0.5 - 0.5 * cos(angle);
    turns_[i] = {cos(angle), -sin(angle)};
  }
  return Status::ok;
}

// The discrete Fourier transform of `count` numbers with a stride; count * stride is the size of
// the window. The transforms of every factor-th number are joined, where the factor is the smallest
// one of the count. `terms` has room for one number of each of them.
void husk_sound::transform(const double* in, size_t count, size_t stride, Complex* out,
                           Complex* terms) const {
  if (count == 1) {
    *out = {*in, 0};
    return;
  }
  const size_t factor = smallest_factor(count), part = count / factor;
  for (size_t k = 0; k < factor; ++k) {
    transform(in + k * stride, part, stride * factor, out + k * part, terms);
  }
  for (size_t i = 0; i < part; ++i) {
    for (size_t k = 0; k < factor; ++k) terms[k] = out[k * part + i];
    for (size_t j = i; j < count; j += part) {
      Complex sum = terms[0];
      const size_t step = j * stride;
      size_t turn = 0;
      for (size_t k = 1; k < factor; ++k) {
        turn += step;
        if (turn >= size_) turn -= size_;
        const Complex by = turns_[turn], term = terms[k];
        sum.real += term.real * by.real - term.imaginary * by.imaginary;
        sum.imaginary += term.real * by.imaginary + term.imaginary * by.real;
      }
      out[j] = sum;
    }
  }
}

Status husk_sound::features(const float* sound, size_t count, size_t columns, float* to,
                            husk_error* error) const {
  size_t length = 0, numbers = 0;
  if (__builtin_mul_overflow(columns, hop, &length) ||
      __builtin_mul_overflow(columns, bands.size(), &numbers) || length > SIZE_MAX / 4) {
    return fail(error, HUSK_INVALID_ARGUMENT, "sound_features: columns is %zu: give fewer",
                columns);
  }
  for (size_t i = 0; i < count; ++i) {
    if (isfinite(sound[i])) continue;
    return fail(error, HUSK_INVALID_INPUT, "sample %zu of the sound is not finite", i);
  }
  if (length < count) length = count;
  List<double> taken;
  List<Complex> spectrum, terms;
  HUSK_TRY(taken.resize(size_, error));
  HUSK_TRY(spectrum.resize(size_, error));
  HUSK_TRY(terms.resize(size_, error));
  double most = -INFINITY;
  for (size_t column = 0; column < columns; ++column) {
    // The window is around a sample. What lies outside of the sound is its mirror image.
    for (size_t i = 0; i < size_; ++i) {
      size_t at = column * hop + i;
      at = at < size_ / 2 ? size_ / 2 - at : at - size_ / 2;
      if (at >= length) at = 2 * (length - 1) - at;
      taken[i] = at < count ? window_[i] * static_cast<double>(sound[at]) : 0;
    }
    transform(taken.data(), size_, 1, spectrum.data(), terms.data());
    for (size_t row = 0; row < bands.size(); ++row) {
      const Band& band = bands[row];
      double energy = 0;
      for (size_t i = 0; i < band.count; ++i) {
        const Complex one = spectrum[band.first + i];
        energy += factors_[band.begin + i] * (one.real * one.real + one.imaginary * one.imaginary);
      }
      const double found = log10(energy > kFloor ? energy : kFloor);
      if (found > most) most = found;
      to[row * columns + column] = static_cast<float>(found);
    }
  }
  const auto least = static_cast<float>(most - kRange);
  for (size_t i = 0; i < numbers; ++i) to[i] = (fmaxf(to[i], least) + 4) / 4;
  return Status::ok;
}

husk_status husk_sound_create(const char* json, size_t bytes, husk_sound** sound,
                              husk_error* error) {
  if (!sound) return null_argument(error, "sound_create", ": sound");
  *sound = nullptr;
  if (!json) return null_argument(error, "sound_create", ": json");
  return make(sound, error,
              [&](husk_sound& created) { return created.read({json, bytes}, error); });
}

void husk_sound_release(husk_sound* sound) { destroy(sound); }

husk_status husk_sound_get(const husk_sound* sound, husk_sound_format* out, husk_error* error) {
  if (!sound || !out) return null_argument(error, "sound_get");
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_sound_format, out, bins, error));
  husk_sound_format all = HUSK_SOUND_FORMAT_INIT;
  all.rate = sound->rate;
  all.samples = sound->samples;
  all.hop = sound->hop;
  all.bins = sound->bands.size();
  husk::detail::write_struct(all, out);
  return HUSK_OK;
}

husk_status husk_sound_features(const husk_sound* sound, const float* samples, size_t count,
                                size_t columns, float* features, husk_error* error) {
  if (!sound || (!samples && count) || (!features && columns)) {
    return null_argument(error, "sound_features");
  }
  return static_cast<husk_status>(sound->features(samples, count, columns, features, error));
}
