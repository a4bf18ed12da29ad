// Faults of MX and NVFP4 (reference/spec/mx_format.h, nvfp4_format.h).

#include <algorithm>
#include <variant>
#include <vector>

#include "reference/spec/kv_format.h"
#include "reference/spec/token_groups.h"
#include "tools/faults/codec_faults.h"

namespace kvcheck {
namespace {

bool IsMx(const CodecCase& c) { return Leaves(c.format, CodecChoice::kMxEncode); }
bool IsNvfp4(const CodecCase& c) { return Leaves(c.format, CodecChoice::kNvfp4Encode); }
void OcpRoundedUp(Profile* profile) { profile->mx_encode = MxEncoder::kUp; }
void OcpToNearest(Profile* profile) { profile->mx_encode = MxEncoder::kMlx031; }
void OcpTiesUp(Profile* profile) { profile->mx_encode = MxEncoder::kSglang; }
void TakesVllm(Profile* profile) { profile->nvfp4_encode = Nvfp4Encoder::kVllm; }
void TakesFourOverSix(Profile* profile) { profile->nvfp4_encode = Nvfp4Encoder::kVllm4Over6; }
void HighNibbleFirst(const CodecCase& c, TensorMap* stored) {
  Tensor* codes = FindPlane(stored, "codes");
  if (!IsMx(c) || codes == nullptr || codes->ElementCount() * 2 != c.rows * c.head_dim) return;
  for (std::byte& byte : codes->bytes) byte = byte << 4 | byte >> 4;
}
void LastBlockZero(const CodecCase& c, TensorMap* stored) {
  Tensor* codes = FindPlane(stored, "codes");
  if (!IsMx(c) || codes == nullptr) return;
  const auto block =
      codes->bytes.size() / static_cast<size_t>(c.rows * c.head_dim / BlockOf(c.format));
  std::fill(codes->bytes.end() - static_cast<std::ptrdiff_t>(block), codes->bytes.end(),
            std::byte{0});
}
// One scale for two blocks, as if these were twice as long.
void ScalesOfPairs(const CodecCase& c, TensorMap* stored) {
  Tensor* scales = FindPlane(stored, "scales");
  if (!IsMx(c) || scales == nullptr) return;
  for (size_t i = 1; i < scales->bytes.size(); i += 2) scales->bytes[i] = scales->bytes[i - 1];
}
// The place of the scale of row t and block s in the layout that vLLM gives V on SM100.
void ScalesSwizzled(const CodecCase& c, TensorMap* stored) {
  Tensor* scales = FindPlane(stored, "scales");
  const int64_t blocks = c.head_dim / BlockOf(c.format);
  if (!IsNvfp4(c) || GroupsTokens(c.format) || scales == nullptr || blocks % 4 != 0) return;
  const std::vector<std::byte> linear = scales->bytes;
  for (int64_t t = 0; t < c.rows / 4 * 4; ++t) {
    for (int64_t s = 0; s < blocks; ++s) {
      const int64_t row = t / 4 * 4 + s / (blocks / 4);
      const int64_t column = s % (blocks / 4) * 4 + t % 4;
      scales->bytes[static_cast<size_t>(row * blocks + column)] =
          linear[static_cast<size_t>(t * blocks + s)];
    }
  }
}
// The same record with another global scale.
template <typename Change>
KvFormat WithGlobalScale(const KvFormat& format, Change change) {
  return std::visit(
      [&](auto family) {
        if constexpr (requires { family.global_scale; }) change(&family.global_scale);
        return KvFormat(family);
      },
      format);
}
KvFormat LinearScales(const KvFormat& format) {
  return Leaves(format, CodecChoice::kNvfp4Encode) ? TokenFormatOf(format) : format;
}
KvFormat InverseGlobalScale(const KvFormat& format) {
  return WithGlobalScale(format, [](float* scale) { *scale = 1 / *scale; });
}
KvFormat NoGlobalScale(const KvFormat& format) {
  return WithGlobalScale(format, [](float* scale) { *scale = 1; });
}
KvFormat OtherConvention(const KvFormat& format) {
  return WithGlobalScale(format, [](float* scale) { *scale = *scale == 1 ? 1 : *scale / 6; });
}

constexpr std::string_view kMxWritten =
    "codec encode mxfp codes bytes | codec encode mxfp scales bytes | codec round_trip mxfp y "
    "bound";
constexpr std::string_view kMxStored =
    "codec encode mxfp codes bytes | codec encode mxfp scales bytes | codec decode mxfp y bytes | "
    "codec decode mxfp y special_value | codec round_trip mxfp y bound";
constexpr std::string_view kNvfp4Written =
    "codec encode nvfp4 codes bytes | codec encode nvfp4 scales bytes | codec round_trip nvfp4 y "
    "bound";
constexpr std::string_view kNvfp4Stored =
    "codec encode nvfp4 codes bytes | codec encode nvfp4 scales bytes | codec decode nvfp4 y bytes "
    "| codec decode nvfp4 y special_value | codec round_trip nvfp4 y bound";
constexpr std::string_view kMxBlock =
    "codec op=encode format=mxfp4:bf16 x=bf16 rows=1 d=32 data=gauss:3";
constexpr std::string_view kGlobalBlock =
    "codec op=decode format=nvfp4:x0.011:bf16 x=bf16 rows=1 d=16 data=gauss:1";

constexpr CodecFault kFaults[] = {
    {{"mx_exponent_rounded_up", "profile", "the exponent of an MX scale is rounded up",
      "sgl-fp4-mixed mlx-fp-exponent", "P9", kMxWritten,
      "codec op=encode format=mxfp4:bf16 x=bf16 rows=1 d=32 data=gauss:4"},
     {.profile = OcpRoundedUp}},
    {{"mx_exponent_of_old_writer", "profile",
      "the exponent of an MX scale is rounded to nearest, as MLX did up to 0.31", "mlx-fp-exponent",
      "P9", kMxWritten, kMxBlock},
     {.profile = OcpToNearest}},
    {{"mx_writer_of_sglang", "profile", "MX blocks are written by SGLang's rule", "sgl-fp4-mixed",
      "P9", kMxWritten, kMxBlock},
     {.profile = OcpTiesUp}},
    {{"mx_high_nibble_first", "codes", "the first of two elements is in the high half of a byte",
      "lcpp-q4-kv-fa-blackwell", "P8", kMxStored, kMxBlock},
     {.tensors = HighNibbleFirst}},
    {{"mx_last_block_missing", "codes", "the last block is not written",
      "rotating-trim-cross-boundary", "P6", kMxStored, kMxBlock},
     {.tensors = LastBlockZero}},
    {{"mx_scale_of_two_blocks", "scales", "two blocks take the scale of the first one",
      "sgl-fp4-mixed ssd-loses-bits-groupsize", "P9", kMxStored,
      "codec op=decode format=mxfp4:g16:bf16 x=bf16 rows=1 d=32 data=group_scales:1"},
     {.tensors = ScalesOfPairs}},
    {{"nvfp4_writer_of_vllm", "profile",
      "NVFP4 is written by vLLM's rule: other ties, signs of zero", "sgl-fp4-mixed", "P9",
      kNvfp4Written, "codec op=encode format=nvfp4:bf16 x=bf16 rows=1 d=16 data=gauss:1"},
     {.profile = TakesVllm}},
    {{"nvfp4_four_over_six", "profile", "the maximum of a block may become 4 in place of 6",
      "sgl-fp4-mixed", "P9", kNvfp4Written,
      "codec op=encode format=nvfp4:bf16 x=bf16 rows=1 d=16 data=gauss:1"},
     {.profile = TakesFourOverSix}},
    {{"nvfp4_scales_swizzled", "scales",
      "scales are stored in the order of SM100, and read in that of rows", "vllm-nvfp4-v-swizzle",
      "P9", kNvfp4Stored,
      "codec op=decode format=nvfp4:bf16 x=bf16 rows=4 d=64 data=group_scales:1"},
     {.tensors = ScalesSwizzled}},
    {{"nvfp4_swizzled_scales_read_linearly", "format",
      "scales that stand in the order of SM100 are written and read as those of one token after "
      "the "
      "other",
      "vllm-nvfp4-v-swizzle", "P9",
      "codec encode nvfp4 scales bytes | codec decode nvfp4 y bytes | codec decode nvfp4 y "
      "special_value | codec round_trip nvfp4 y bound",
      "codec op=decode format=nvfp4:swizzled:bf16 x=bf16 rows=1 d=256 data=group_scales:1"},
     {.format = LinearScales}},
    {{"nvfp4_global_scale_inverted", "format",
      "the global scale of encoding is taken for that of decoding", "fi-nvfp4-global-scale", "P9",
      kNvfp4Stored, kGlobalBlock},
     {.format = InverseGlobalScale}},
    {{"nvfp4_global_scale_ignored", "format", "the global scale is 1",
      "fi-nvfp4-global-scale sgl-fp8-scale-not-loaded", "P9", kNvfp4Stored, kGlobalBlock},
     {.format = NoGlobalScale}},
    {{"nvfp4_global_scale_of_other_convention", "format",
      "amax / (448 * 6) is taken where amax / 448 was stored", "fi-nvfp4-global-scale", "P9",
      kNvfp4Stored, kGlobalBlock},
     {.format = OtherConvention}},
};

}  // namespace

std::span<const CodecFault> SmallFloatFaults() { return kFaults; }

}  // namespace kvcheck
