// Faults of turboquant's codec: turboquant.md, section 5, as far as a codec case can show them.

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "reference/formats/random_signs.h"
#include "reference/formats/turboquant_rotation.h"
#include "reference/spec/kv_format.h"
#include "tools/faults/codec_faults.h"

namespace kvcheck {
namespace {

// Another orthogonal matrix, which has nothing to do with the signs: what the dense rotation is to
// a library that keeps one beside the Hadamard transform. The reflection I - 2 v v^T of a vector
// without zeros.
void Reflect(const TurboquantGroup&, std::span<float> v) {
  std::vector<double> axis(v.size());
  double square = 0, dot = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    axis[i] = std::sin(1.0 + static_cast<double>(i));
    square += axis[i] * axis[i];
    dot += axis[i] * static_cast<double>(v[i]);
  }
  for (size_t i = 0; i < v.size(); ++i) {
    v[i] = static_cast<float>(static_cast<double>(v[i]) - 2 * dot / square * axis[i]);
  }
}

// The Hadamard transform before the signs in place of after them.
void SignsLast(const TurboquantGroup& group, std::span<float> u) {
  RotateBack<float>(group.signs(), u);
}

void SignsNotUndone(const TurboquantGroup& group, std::span<float> y) {
  const std::vector<float> plus(group.d(), 1.0f);
  RotateBack<float>(plus, y);
}

void SignsOfOtherSeed(const TurboquantGroup& group, std::span<float> u) {
  const auto d = static_cast<int64_t>(group.d());
  Rotate<float>(RandomSigns(TurboquantRngSeed(1234567, d), d), u);
}

// As after padding to twice the dimension: divided by the wrong root.
void ScaleOfTwiceTheDimension(const TurboquantGroup& group, std::span<float> y) {
  RotateBack<float>(group.signs(), y);
  for (float& value : y) value *= 0x1.6a09e6p-1f;
}

uint8_t TiesUp(const TurboquantGroup& group, float y) {
  uint8_t code = 0;
  for (const float t : group.thresholds()) code = static_cast<uint8_t>(code + (y >= t ? 1 : 0));
  return code;
}
float NormOfUnitVector(const TurboquantGroup& group, float norm) {
  return norm / group.Divisor(norm);
}
float NormWithFloor(const TurboquantGroup&, float norm) { return std::max(norm, 1e-3f); }
float One(float) { return 1.0f; }

// Each lane reads the word, sets its code and writes it back: the last one of a word survives.
void LastCodeOfAWord(std::span<const uint8_t> codes, int bits, std::span<uint32_t> words) {
  for (size_t i = 0; i < codes.size(); ++i) {
    const size_t bit = i * static_cast<size_t>(bits);
    const uint64_t code = static_cast<uint64_t>(codes[i]) << bit % 32;
    words[bit / 32] = static_cast<uint32_t>(code);
    if (bit % 32 + static_cast<size_t>(bits) > 32) {
      words[bit / 32 + 1] = static_cast<uint32_t>(code >> 32);
    }
  }
}

float FourCentroids(const TurboquantGroup& group, uint8_t code) {
  return group.centroids()[code & 3];
}
// 1 / sqrt(2 d) in place of 1 / sqrt(d).
float CentroidsOfTwiceTheDimension(const TurboquantGroup& group, uint8_t code) {
  return group.centroids()[code] * 0x1.6a09e6p-1f;
}
float CentroidsDescending(const TurboquantGroup& group, uint8_t code) {
  return group.centroids()[group.centroids().size() - 1 - code];
}

// Of a format with half a bit: the halves exchanged, as after joining with a cache that chose
// others.
KvFormat OtherChannels(const KvFormat& format) {
  return std::visit(
      [](auto family) {
        if constexpr (requires { family.high; }) {
          for (size_t word = 0; word < static_cast<size_t>(family.group_size) / 32; ++word) {
            family.high[word] = ~family.high[word];
          }
        }
        return KvFormat(family);
      },
      format);
}

void HalfDropped(std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 8 < 4 ? values[i] : 0;
}

constexpr std::string_view kCodes =
    "codec encode turboquant codes bytes | codec round_trip turboquant y bound";
constexpr std::string_view kNorms =
    "codec encode turboquant norms bytes | codec encode turboquant norms special_value | codec "
    "round_trip turboquant y bound";
constexpr std::string_view kValues =
    "codec decode turboquant y bytes | codec decode turboquant y bound | codec decode turboquant y "
    "special_value | codec round_trip turboquant y bound";

constexpr std::string_view kEncoded =
    "codec op=encode format=turboquant:4:g32:f32 x=f32 rows=1 d=32 data=gauss:1";
constexpr std::string_view kDecoded =
    "codec op=decode format=turboquant:4:g32:f32 x=f32 rows=1 d=32 data=gauss:1";
constexpr std::string_view kSparse =
    "codec op=encode format=turboquant:4:g32:f32 x=f32 rows=8 d=32 data=sparse:1";

constexpr CodecFault kTurboquantFaults[] = {
    {{"tq_write_basis_dense", "rotate", "rows are written in another basis than they are read in",
      "tq-fused-l1-quantize-basis", "P5", kCodes, kEncoded},
     {.turboquant = {.rotate = Reflect}}},
    {{"tq_read_basis_dense", "rotate_back", "rows are read in another basis than they were written",
      "tq-l1-value-kernel-ignores-rht", "P9", kValues, kDecoded},
     {.turboquant = {.rotate_back = Reflect}}},
    {{"tq_signs_last", "rotate", "signs are applied after the Hadamard transform",
      "tq-fused-l1-quantize-basis", "P5", kCodes, kEncoded},
     {.turboquant = {.rotate = SignsLast}}},
    {{"tq_signs_not_undone", "rotate_back", "signs are not undone",
      "tq-l1-value-kernel-ignores-rht", "P9", kValues, kDecoded},
     {.turboquant = {.rotate_back = SignsNotUndone}}},
    {{"tq_signs_of_other_seed", "rotate", "the signs are those of another seed",
      "tq-fused-l1-quantize-basis", "P5", kCodes, kEncoded},
     {.turboquant = {.rotate = SignsOfOtherSeed}}},
    {{"tq_scale_of_padded_dim", "rotate_back",
      "the inverse is divided by the root of twice the dimension", "vllm-tq-padded-hadamard", "P9",
      kValues, kDecoded},
     {.turboquant = {.rotate_back = ScaleOfTwiceTheDimension}}},
    {{"tq_ties_up", "code", "a coordinate on a threshold goes up under mlx-vlm's profile",
      "tq-fused-l1-quantize-basis", "P5", kCodes, kSparse},
     {.turboquant = {.code = TiesUp}}},
    {{"tq_norm_of_unit_vector", "norm", "the norm is taken after the row was divided by it",
      "vllm-fp8-v1-wrong", "P9", kNorms, kEncoded},
     {.turboquant = {.stored_norm = NormOfUnitVector}}},
    {{"tq_norm_with_floor", "norm", "the floor of the divisor is stored as the norm",
      "vllm-fp8-v1-wrong", "P9", kNorms,
      "codec op=encode format=turboquant:4:g32:f32 x=f32 rows=1 d=32 data=tiny:1"},
     {.turboquant = {.stored_norm = NormWithFloor}}},
    {{"tq_norm_not_applied", "norm", "rows are read with the norm 1",
      "sgl-fp8-scale-not-loaded fi-fp8-scale-ignored", "P9", kValues, kDecoded},
     {.turboquant = {.read_norm = One}}},
    {{"tq_pack_not_atomic", "pack", "of the codes of a word one survives", "vlm-tq-pack-race", "P9",
      kCodes, kEncoded},
     {.turboquant = {.pack = LastCodeOfAWord}}},
    {{"tq_two_bits", "centroid", "every width is read as two bits", "vllm-tq-2bit-hardcoded", "P9",
      kValues, kDecoded},
     {.turboquant = {.centroid = FourCentroids}}},
    {{"tq_centroids_scaled", "centroid", "centroids are scaled by 1/sqrt(2d)", "tq-centroid-scale",
      "P9", kValues, kDecoded},
     {.turboquant = {.centroid = CentroidsOfTwiceTheDimension}}},
    {{"tq_centroids_descending", "centroid", "centroids are read in the other order",
      "vllm-tq-2bit-hardcoded", "P9", kValues, kDecoded},
     {.turboquant = {.centroid = CentroidsDescending}}},
    {{"tq_half_of_v_dropped", "read", "four of every eight channels are zero",
      "lcpp-q4-kv-fa-blackwell", "P8", kValues, kDecoded},
     {.turboquant = {.read = HalfDropped}}},
    {{"tq_channels_of_another_cache", "format",
      "codes of half a bit are written and read with the channels of another cache",
      "ssd-loses-bits-groupsize", "P4",
      "codec encode turboquant codes bytes | codec encode turboquant norms bytes | codec decode "
      "turboquant y bytes | codec decode turboquant y bound | codec decode turboquant y "
      "special_value | codec round_trip turboquant y bound",
      "codec op=decode format=turboquant:3.5:g64:ha53cc35affff0000:f32 x=f32 rows=1 d=64 "
      "data=gauss:1"},
     {.format = OtherChannels}},
};

}  // namespace

std::span<const CodecFault> TurboquantFaults() { return kTurboquantFaults; }

}  // namespace kvcheck
