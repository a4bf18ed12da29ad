// Faults of codes per channel: along which axis groups run, how scale and zero are made, whose they
// are.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "reference/formats/affine.h"
#include "reference/formats/codec.h"
#include "reference/numerics/convert.h"
#include "reference/numerics/ulp.h"
#include "reference/spec/token_groups.h"
#include "tools/faults/codec_faults.h"

namespace kvcheck {
namespace {

// Element i of a group as it stands, of a group whose channels are runs of consecutive elements.
size_t Consecutive(size_t i, size_t tokens, size_t channels) {
  return i % channels * tokens + i / channels;
}

// Groups of consecutive elements, as along the channels of a token: what quanto's axis 0 means. The
// planes have the sizes of groups along tokens.
TensorMap GroupsAlongChannels(const CodecCase& c, const Profile& profile, const Tensor& x) {
  if (!GroupsTokens(c.format)) return EncodeRows(c.format, profile, x);
  const auto tokens = static_cast<size_t>(TokenGroupOf(c.format));
  const auto length = static_cast<size_t>(c.head_dim);
  const size_t channels = length / tokens;
  if (channels == 0) return EncodeRows(c.format, profile, x);
  const size_t bytes = SizeInBytes(x.dtype);
  Tensor turned = x;
  for (size_t row = 0; row < static_cast<size_t>(c.rows); ++row) {
    for (size_t i = 0; i < length; ++i) {
      const size_t from = row * length + Consecutive(i, tokens, channels);
      std::memcpy(turned.bytes.data() + (row * length + i) * bytes, x.bytes.data() + from * bytes,
                  bytes);
    }
  }
  TensorMap stored = EncodeRows(c.format, profile, turned);
  Tensor& words = stored.at("codes");
  const auto width = static_cast<size_t>(words.shape.RowLength());
  const int bits = static_cast<int>(width * 32 / length);
  std::vector<uint8_t> codes(length), back(length);
  for (size_t row = 0; row < static_cast<size_t>(c.rows); ++row) {
    const std::span<uint32_t> of_row(words.As<uint32_t>() + row * width, width);
    UnpackCodes(of_row, bits, codes);
    for (size_t i = 0; i < length; ++i) back[Consecutive(i, tokens, channels)] = codes[i];
    PackCodes(back, bits, of_row);
  }
  return stored;
}

// Edits every element of a plane of groups of tokens.
template <typename Edit>
void EditPlane(const CodecCase& c, const char* plane, TensorMap* stored, Edit edit) {
  const auto found = stored->find(plane);
  if (!GroupsTokens(c.format) || found == stored->end()) return;
  Tensor& tensor = found->second;
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  for (double& value : values) value = edit(tensor.dtype, value);
  EncodeFrom(values, tensor.dtype, tensor.bytes.data());
}

void ZerosRoundedUp(const CodecCase& c, TensorMap* stored) {
  EditPlane(c, "zeros", stored,
            [](DType type, double zero) { return Decode(type, NextUp(type, Encode(type, zero))); });
}

// 2^bits levels in place of 2^bits - 1.
void StepsOfOneLevelMore(const CodecCase& c, TensorMap* stored) {
  if (!GroupsTokens(c.format)) return;
  const Planes planes = PlanesOf(c.format, c.head_dim);
  const double bits =
      static_cast<double>(planes[0].elements) * 32 / static_cast<double>(c.head_dim);
  const double levels = std::exp2(bits);
  EditPlane(c, "scales", stored, [levels](DType type, double scale) {
    return RoundTo(type, scale * (levels - 1) / levels);
  });
}

void ScalesOfTheLastGroup(const CodecCase& c, TensorMap* stored) {
  if (!GroupsTokens(c.format) || c.rows < 2) return;
  for (const char* plane : {"scales", "zeros"}) {
    std::vector<std::byte>& bytes = stored->at(plane).bytes;
    const size_t row = bytes.size() / static_cast<size_t>(c.rows);
    std::memmove(bytes.data() + row, bytes.data(), bytes.size() - row);
  }
}

void ZeroPointForMinimum(Profile* profile) { profile->channel = ChannelWriter::kOpenvino; }

constexpr std::string_view kZeros =
    "codec encode channel zeros bytes | codec decode channel y bytes | codec round_trip channel y "
    "bound";
constexpr std::string_view kScales =
    "codec encode channel scales bytes | codec decode channel y bytes | codec round_trip channel y "
    "bound";
constexpr std::string_view kAny =
    "codec encode channel codes bytes | codec encode channel scales bytes | codec encode channel "
    "zeros bytes | codec decode channel y bytes | codec decode channel y special_value | codec "
    "round_trip channel y bound";
constexpr std::string_view kEncoded =
    "codec op=encode format=channel:4:g8:f32 x=f32 rows=1 d=16 data=gauss:1";
constexpr std::string_view kTwoGroups =
    "codec op=encode format=channel:4:g8:f32 x=f32 rows=2 d=8 data=gauss:1";

constexpr CodecFault kChannelFaults[] = {
    {{"channel_groups_along_channels", "encode", "groups run along channels in place of tokens",
      "hf-quanto-axis-0", "P9", kAny, kEncoded},
     {.encode = GroupsAlongChannels}},
    {{"channel_zero_rounded_up", "tensors", "the zero is rounded away from the least value",
      "vllm-fp8-v1-wrong", "P9", kZeros, kEncoded},
     {.tensors = ZerosRoundedUp}},
    {{"channel_step_of_one_level_more", "tensors", "the range is divided by 2^bits",
      "vllm-fp8-v1-wrong", "P9", kScales, kEncoded},
     {.tensors = StepsOfOneLevelMore}},
    {{"channel_scales_of_last_group", "tensors", "scales and zeros are those of the group before",
      "ov-by-channel-block-scales", "P9", kAny, kTwoGroups},
     {.tensors = ScalesOfTheLastGroup}},
    {{"channel_zero_point_for_minimum", "profile",
      "a zero point is stored and read where the minimum is meant", "hf-quanto-axis-0", "P9", kAny,
      kEncoded},
     {.profile = ZeroPointForMinimum}},
};

}  // namespace

std::span<const CodecFault> ChannelFaults() { return kChannelFaults; }

}  // namespace kvcheck
