// Codes per channel (formats.md, section G): groups of tokens, by writer. n = 2^bits - 1; min and
// max are of the channel's tokens; every step is rounded, for kivi to the row type, else to f32.
//
//   kivi      scale (max - min) / n          zero min              code (x - zero) / scale
//             value code scale + zero                              0 where the scale is 0
//   hqq       1 / m, m = n (1 / (max - min))  zero -min m           code x m + zero
//             at most 2e4; 1 below 1e-4      value (code - zero) scale
//   openvino  (max - min) (1 / n),           zero -min / scale     code fma(x, 1 / scale, zero)
//             1e-4 for 0                     value (code - zero) scale
//
// Codes are rounded to nearest even and clamped; scale and zero are then stored in the row type. A
// row is a group of tokens, token after token: channel c of token t is element t D + c. A group of
// one token has scale 0 and is its zeros, whatever they hold: the residual of a cache.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/formats/affine.h"
#include "reference/formats/format_arithmetic.h"
#include "reference/formats/group_codes.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kU32 = 0x1p-24;  // unit roundoff of f32

enum ChannelPlane : size_t { kCodes, kScales, kZeros };

double F32(double x) { return RoundTo(DType::kFloat32, x); }

// What the tokens of one channel share.
struct Channel {
  double scale = 0;  // as stored
  double zero = 0;
  // What codes are made with, of writers with a zero point: x times multiplier plus offset.
  double multiplier = 0;
  double offset = 0;
  bool is_defined = true;  // numbers alone, whose range is one too
};

// m of hqq, whose 1 / y is a reciprocal and n / y a product with it.
void SetHqq(double n, double least, double most, Channel* channel) {
  constexpr double kSmallestRange = 1e-4f, kLargestMultiplier = 2e4;
  const double range = F32(most - least);
  channel->multiplier =
      range <= kSmallestRange ? 1.0 : std::min(kLargestMultiplier, F32(F32(1 / range) * n));
  channel->offset = F32(-least * channel->multiplier);
  channel->scale = F32(1 / channel->multiplier);
}

void SetOpenvino(double n, double least, double most, Channel* channel) {
  constexpr double kScaleOfNone = 1e-4f;
  channel->scale = F32(F32(most - least) * F32(1 / n));
  if (channel->scale == 0) channel->scale = kScaleOfNone;
  channel->offset = F32(-least / channel->scale);
  channel->multiplier = F32(1 / channel->scale);
}

// The values of channel c are rounded[c + t channels].
Channel ChannelOf(const ChannelFormat& format, ChannelWriter writer,
                  std::span<const double> rounded, size_t channels, size_t c) {
  Channel channel;
  ValueRange range;
  for (size_t i = c; i < rounded.size(); i += channels) range.Add(rounded[i]);
  if (format.group == 1) {
    channel.zero = rounded[c];
    return channel;
  }
  if (writer == ChannelWriter::kKivi || !range.is_finite) {
    const MinimumGroup group = MinimumGroupOf(format.bits, format.row_type, range);
    return {group.scale, group.zero, 0, 0, group.is_defined};
  }
  const double n = static_cast<double>((1 << format.bits) - 1);
  if (writer == ChannelWriter::kHqq) {
    SetHqq(n, range.least, range.most, &channel);
  } else {
    SetOpenvino(n, range.least, range.most, &channel);
  }
  channel.scale = RoundTo(format.row_type, channel.scale);
  channel.zero = RoundTo(format.row_type, channel.offset);
  channel.is_defined = std::isfinite(channel.scale) && std::isfinite(channel.zero) &&
                       std::isfinite(channel.multiplier) && channel.scale > 0;
  return channel;
}

// The real number x m + offset, and how a writer rounds it.
double PositionOf(ChannelWriter writer, const Channel& channel, double x) {
  const double product = x * channel.multiplier;  // 24 and 24 bits: exact
  if (writer == ChannelWriter::kHqq) return F32(F32(product) + channel.offset);
  const double sum = product + channel.offset;
  const double part = sum - product;  // Knuth's TwoSum
  return RoundExact(DType::kFloat32, {sum, (product - (sum - part)) + (channel.offset - part)});
}

uint8_t CodeOf(const ChannelFormat& format, ChannelWriter writer, const Channel& channel,
               double x) {
  if (writer == ChannelWriter::kKivi || !channel.is_defined || channel.scale == 0) {
    return MinimumCode(format.bits, format.row_type,
                       {channel.scale, channel.zero, channel.is_defined}, x);
  }
  const double n = static_cast<double>((1 << format.bits) - 1);
  // Under the default rounding direction nearbyint rounds half to even.
  return static_cast<uint8_t>(std::clamp(std::nearbyint(PositionOf(writer, channel, x)), 0.0, n));
}

// A scale of 0 is that of a token of the residual, or of a channel without a range: every writer's
// value is then the zero.
ExactValue ValueOf(ChannelWriter writer, uint8_t code, double scale, double zero) {
  if (writer == ChannelWriter::kKivi || scale == 0) return AffineValue(code, scale, zero);
  // code scale - zero scale: two exact products of at most 48 bits.
  return AffineValue(code, scale, -zero * scale);
}

double RoundedValueOf(ChannelWriter writer, DecodeRounding decode, DType type, uint8_t code,
                      double scale, double zero) {
  if (decode != DecodeRounding::kTwoRoundings) {
    return RoundExact(type, ValueOf(writer, code, scale, zero));
  }
  if (writer == ChannelWriter::kKivi || scale == 0) {
    return RoundTo(type, RoundTo(type, code * scale) + zero);
  }
  return RoundTo(type, RoundTo(type, code - zero) * scale);
}

class ChannelRows : public RowArithmetic {
 public:
  ChannelRows(const ChannelFormat& format, const Profile& profile, int64_t row_elements)
      : format_(format),
        profile_(profile),
        element_bytes_(SizeInBytes(format.row_type)),
        values_(static_cast<size_t>(row_elements)),
        codes_(values_.size()),
        words_(values_.size() * static_cast<size_t>(format.bits) / 32),
        channels_(values_.size() / static_cast<size_t>(format.group)) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    std::copy(x.begin(), x.end(), values_.begin());
    RoundAll(values_, format_.row_type);
    for (size_t c = 0; c < channels_; ++c) {
      const Channel channel = ChannelOf(format_, profile_.channel, values_, channels_, c);
      for (size_t i = c; i < values_.size(); i += channels_) {
        codes_[i] = CodeOf(format_, profile_.channel, channel, values_[i]);
      }
      EncodeFrom({&channel.scale, 1}, format_.row_type, stored[kScales] + c * element_bytes_);
      EncodeFrom({&channel.zero, 1}, format_.row_type, stored[kZeros] + c * element_bytes_);
    }
    PackCodes(codes_, format_.bits, words_);
    std::memcpy(stored[kCodes], words_.data(), words_.size() * sizeof(uint32_t));
  }

  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    ForEachChannel(stored, [&](size_t c, double scale, double zero) {
      for (size_t i = c; i < codes_.size(); i += channels_) {
        const ExactValue value = ValueOf(profile_.channel, codes_[i], scale, zero);
        hi[i] = value.hi;
        if (!lo.empty()) lo[i] = value.lo;
      }
    });
  }

  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    ForEachChannel(stored, [&](size_t c, double scale, double zero) {
      for (size_t i = c; i < codes_.size(); i += channels_) {
        out[i] = RoundedValueOf(profile_.channel, profile_.decode, format_.row_type, codes_[i],
                                scale, zero);
      }
    });
  }

 private:
  // visit(channel, scale, zero), with the codes of the row in codes_.
  template <typename Visit>
  void ForEachChannel(RowPlanesView stored, Visit visit) {
    std::memcpy(words_.data(), stored[kCodes], words_.size() * sizeof(uint32_t));
    UnpackCodes(words_, format_.bits, codes_);
    for (size_t c = 0; c < channels_; ++c) {
      double scale = 0, zero = 0;
      DecodeBytes(stored[kScales] + c * element_bytes_, format_.row_type, {&scale, 1});
      DecodeBytes(stored[kZeros] + c * element_bytes_, format_.row_type, {&zero, 1});
      visit(c, scale, zero);
    }
  }

  ChannelFormat format_;
  Profile profile_;
  size_t element_bytes_;
  std::vector<double> values_;
  std::vector<uint8_t> codes_;
  std::vector<uint32_t> words_;
  size_t channels_;
};

class ChannelArithmetic : public FormatArithmetic {
 public:
  explicit ChannelArithmetic(const ChannelFormat& format) : format_(format) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile,
                                          int64_t row_elements) const override {
    return std::make_unique<ChannelRows>(format_, profile, row_elements);
  }

  std::vector<std::string> Terms() const override {
    return {"row rounding", "code", "product rounding", "sum rounding", "encoder arithmetic"};
  }

  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    std::vector<double> rounded(x.begin(), x.end());
    RoundAll(rounded, format_.row_type);
    const size_t channels = x.size() / static_cast<size_t>(format_.group);
    for (size_t c = 0; c < channels; ++c) {
      const Channel channel = ChannelOf(format_, question.profile.channel, rounded, channels, c);
      for (size_t i = c; i < x.size(); i += channels) {
        bound->undefined[i] = std::isnan(channel.zero) || !std::isfinite(rounded[i]);
        if (!channel.is_defined || bound->undefined[i]) {
          bound->overflows[i] = true;
          bound->total[i] = kInfinity;
          continue;
        }
        BoundElement(question, channel, rounded[i], x[i], i, bound);
      }
    }
  }

  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    std::vector<ProfileChange> changes;
    AddChanges(profile, CodecChoice::kChannel, &changes);
    AddChanges(profile, CodecChoice::kDecode, &changes, {"exact"});
    return changes;
  }

  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    AddTileAlternatives(profile, x, static_cast<int64_t>(x.size()), tiles);
  }

  void AddTileAlternatives(const Profile& profile, std::span<const double> x, int64_t row_elements,
                           std::vector<ExpectedTile>* tiles) const override {
    const auto length = static_cast<size_t>(row_elements);
    const size_t channels = length / static_cast<size_t>(format_.group);
    for (size_t first = 0; first + length <= x.size(); first += length) {
      std::vector<double> rounded(x.begin() + static_cast<std::ptrdiff_t>(first),
                                  x.begin() + static_cast<std::ptrdiff_t>(first + length));
      RoundAll(rounded, format_.row_type);
      // Channels share words: which bits of each are free.
      const size_t bits = static_cast<size_t>(format_.bits);
      const size_t words = length * bits / 32;
      std::vector<uint64_t> free_bits(words);
      std::vector<CodecReason> reasons(words, kBlockWithoutScale);
      for (size_t c = 0; c < channels; ++c) {
        const Channel channel = ChannelOf(format_, profile.channel, rounded, channels, c);
        if (channel.is_defined && channel.scale != 0) continue;
        for (size_t bit = c * bits; bit < length * bits; bit += channels * bits) {
          free_bits[bit / 32] |= ((uint64_t{1} << bits) - 1) << bit % 32;
          if (!channel.is_defined) reasons[bit / 32] = kGroupNotFinite;
        }
        if (channel.is_defined) continue;
        for (const size_t plane : {kScales, kZeros}) {
          (*tiles)[plane].alternatives.push_back(
              {.element = static_cast<int64_t>(first / length * channels + c),
               .value = 0,
               .any = true,
               .reason = kGroupNotFinite});
        }
      }
      for (size_t word = 0; word < words; ++word) {
        if (free_bits[word] == 0) continue;
        (*tiles)[kCodes].alternatives.push_back(
            {.element = static_cast<int64_t>(first / length * words + word),
             .value = 0,
             .any = false,
             .reason = reasons[word],
             .free_bits = free_bits[word]});
      }
    }
  }

 private:
  // How far the position that a writer rounds to a code may be from t, where x stands as it is
  // read.
  double PositionError(ChannelWriter writer, const Channel& channel, double x, double t) const {
    if (writer == ChannelWriter::kKivi) return MinimumPositionError(format_.row_type, t);
    const double product = std::fabs(x * channel.multiplier);
    const double position = x * channel.multiplier + channel.offset;
    // Roundings of f32: hqq's of a product and a sum, openvino's one of both. And the scale and
    // zero that are read are others than those that the code was made with.
    const double roundings =
        writer == ChannelWriter::kHqq
            ? kU32 * (product + (1 + kU32) * product + std::fabs(channel.offset))
            : kU32 * std::fabs(position);
    return roundings + 0x1p-149 + std::fabs(position - t) +
           0x1p-50 * (product + std::fabs(channel.offset));  // of this line's own sums
  }

  // x: of the row type; given: before it was rounded to that.
  void BoundElement(const RoundTripQuestion& question, const Channel& channel, double x,
                    double given, size_t i, RowBound* bound) const {
    const ChannelWriter writer = question.profile.channel;
    const double s = channel.scale;
    CodePlace place{format_.bits, format_.row_type, s};
    place.has_offset = writer == ChannelWriter::kKivi || s == 0;
    if (s == 0) {
      place.above = x - channel.zero;
    } else {
      place.t = place.has_offset ? (x - channel.zero) / s : x / s + channel.zero;
      place.position_error = PositionError(writer, channel, x, place.t);
    }
    const CodeBound code = BoundOfCode(question, place, x, given);
    bound->overflows[i] = code.overflows;
    bound->total[i] = code.total;
    bound->wrong_code[i] = code.wrong_code;
    for (size_t term = 0; term < kCodeTerms; ++term) bound->terms[term][i] = code.terms[term];
  }

  ChannelFormat format_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const ChannelFormat& format) {
  return std::make_unique<ChannelArithmetic>(format);
}

}  // namespace kvcheck
