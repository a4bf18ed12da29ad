// Rows in affine groups: the planes of affine_format.h through the group codec of affine.h.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/formats/affine.h"
#include "reference/formats/affine_bound.h"
#include "reference/formats/format_arithmetic.h"
#include "reference/formats/group_codes.h"
#include "reference/numerics/convert.h"
#include "reference/spec/codec_choices.h"

namespace kvcheck {
namespace {

enum AffinePlane : size_t { kCodes, kScales, kBiases };

class AffineRows : public RowArithmetic {
 public:
  AffineRows(const AffineFormat& format, const Profile& profile, int64_t head_dim)
      : format_(format),
        profile_(profile),
        scale_bytes_(SizeInBytes(format.scale_dtype)),
        values_(static_cast<size_t>(head_dim)),
        group_(static_cast<size_t>(format.group_size)),
        codes_(group_.size()),
        words_(group_.size() * static_cast<size_t>(format.bits) / 32) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    std::copy(x.begin(), x.end(), values_.begin());
    RoundAll(values_, format_.scale_dtype);
    for (size_t g = 0; g * group_.size() < values_.size(); ++g) {
      const auto [scale, bias] =
          EncodeGroup(std::span(values_).subspan(g * group_.size(), group_.size()));
      PackCodes(codes_, format_.bits, words_);
      const size_t word_bytes = words_.size() * sizeof(uint32_t);
      std::memcpy(stored[kCodes] + g * word_bytes, words_.data(), word_bytes);
      EncodeFrom({&scale, 1}, format_.scale_dtype, stored[kScales] + g * scale_bytes_);
      EncodeFrom({&bias, 1}, format_.scale_dtype, stored[kBiases] + g * scale_bytes_);
    }
  }

  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    ForEachGroup(stored, hi.size(), [&](size_t first, double scale, double bias) {
      for (size_t i = 0; i < codes_.size(); ++i) {
        const ExactValue value = AffineValue(codes_[i], scale, bias);
        hi[first + i] = value.hi;
        if (!lo.empty()) lo[first + i] = value.lo;
      }
    });
  }

  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    ForEachGroup(stored, out.size(), [&](size_t first, double scale, double bias) {
      DecodeAffineGroup(profile_.decode, format_.scale_dtype, codes_, scale, bias,
                        out.subspan(first, codes_.size()));
    });
  }

  void ReadCodes(RowPlanesView stored, std::span<double> codes, std::span<double> scales,
                 std::span<double> biases) override {
    ForEachGroup(stored, codes.size(), [&](size_t first, double scale, double bias) {
      std::copy(codes_.begin(), codes_.end(), codes.begin() + static_cast<std::ptrdiff_t>(first));
      scales[first / group_.size()] = scale;
      biases[first / group_.size()] = bias;
    });
  }

 private:
  // Scale and bias; the codes in codes_. values: of the row type.
  std::pair<double, double> EncodeGroup(std::span<const double> values) {
    if (profile_.encode == AffineEncoder::kKivi) {
      const MinimumGroup group =
          EncodeFromMinimum(format_.bits, format_.scale_dtype, values, codes_);
      return {group.scale, group.zero};
    }
    // Values of f32, f16 and bf16 are exact in f32.
    for (size_t i = 0; i < group_.size(); ++i) group_[i] = static_cast<float>(values[i]);
    const AffineGroup group = EncodeAffineGroup(format_.bits, profile_.encode, group_, codes_);
    return {group.scale, group.bias};
  }

  // visit(first channel, scale, bias) of every group, whose codes are in codes_.
  template <typename Visit>
  void ForEachGroup(RowPlanesView stored, size_t channels, Visit visit) {
    const size_t word_bytes = words_.size() * sizeof(uint32_t);
    for (size_t g = 0; g * group_.size() < channels; ++g) {
      std::memcpy(words_.data(), stored[kCodes] + g * word_bytes, word_bytes);
      UnpackCodes(words_, format_.bits, codes_);
      double scale = 0, bias = 0;
      DecodeBytes(stored[kScales] + g * scale_bytes_, format_.scale_dtype, {&scale, 1});
      DecodeBytes(stored[kBiases] + g * scale_bytes_, format_.scale_dtype, {&bias, 1});
      visit(g * group_.size(), scale, bias);
    }
  }

  AffineFormat format_;
  Profile profile_;
  size_t scale_bytes_;
  std::vector<double> values_;
  std::vector<float> group_;
  std::vector<uint8_t> codes_;
  std::vector<uint32_t> words_;
};

// Of KIVI's writer: nothing of a group that is no finite range, and no codes of one without a step.
void AddMinimumAlternatives(const AffineFormat& affine, std::span<const double> x,
                            std::vector<ExpectedTile>* tiles) {
  const auto size = static_cast<size_t>(affine.group_size);
  const size_t words = size * static_cast<size_t>(affine.bits) / 32;
  for (size_t g = 0; g * size < x.size(); ++g) {
    ValueRange range;
    for (const double value : x.subspan(g * size, size)) {
      range.Add(RoundTo(affine.scale_dtype, value));
    }
    const MinimumGroup group = MinimumGroupOf(affine.bits, affine.scale_dtype, range);
    if (group.is_defined && group.scale != 0) continue;
    const CodecReason reason = group.is_defined ? kBlockWithoutScale : kGroupNotFinite;
    const auto any = [&](size_t plane, size_t element) {
      (*tiles)[plane].alternatives.push_back(
          {.element = static_cast<int64_t>(element), .value = 0, .any = true, .reason = reason});
    };
    for (size_t word = 0; word < words; ++word) any(kCodes, g * words + word);
    if (group.is_defined) continue;
    any(kScales, g);
    any(kBiases, g);
  }
}

void AddEncodeAlternatives(const AffineFormat& affine, const Profile& profile,
                           std::span<const double> x, std::vector<ExpectedTile>* tiles) {
  const size_t group = static_cast<size_t>(affine.group_size);
  const size_t bits = static_cast<size_t>(affine.bits);
  const size_t group_words = group * bits / 32;
  const auto any = [&](size_t output, size_t element, CodecReason reason) {
    (*tiles)[output].alternatives.push_back(
        {.element = static_cast<int64_t>(element), .value = 0, .any = true, .reason = reason});
  };
  const auto bits_of = [&](size_t word, uint64_t free_bits) {
    (*tiles)[0].alternatives.push_back({.element = static_cast<int64_t>(word),
                                        .value = 0,
                                        .any = false,
                                        .reason = kNanCode,
                                        .free_bits = free_bits});
  };
  for (size_t first = 0; first < x.size(); first += group) {
    std::vector<double> values(x.begin() + static_cast<std::ptrdiff_t>(first),
                               x.begin() + static_cast<std::ptrdiff_t>(first + group));
    RoundAll(values, affine.scale_dtype);
    size_t nan_count = 0;
    bool infinite = false;
    for (const double value : values) {
      nan_count += std::isnan(value) ? 1 : 0;
      infinite = infinite || std::isinf(value);
    }
    if (nan_count == 0 && !infinite) continue;
    const size_t first_word = first / group * group_words;
    const bool gpu = profile.encode == AffineEncoder::kMlxGpu;
    const bool whole = gpu || infinite || nan_count == group;
    if (gpu) {
      any(1, first / group, kGpuNotFinite);
      any(2, first / group, kGpuNotFinite);
    }
    for (size_t word = 0; word < group_words; ++word) {
      if (whole) {
        any(0, first_word + word, gpu ? kGpuNotFinite : kInfiniteGroup);
        continue;
      }
      // Codes of a NaN alone: a code may begin in the word before.
      uint64_t free_bits = 0;
      for (size_t bit = 0; bit < 32; ++bit) {
        if (std::isnan(values[(word * 32 + bit) / bits])) free_bits |= uint64_t{1} << bit;
      }
      if (free_bits != 0) bits_of(first_word + word, free_bits);
    }
  }
}

class AffineArithmetic : public FormatArithmetic {
 public:
  explicit AffineArithmetic(const AffineFormat& format) : format_(format) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t head_dim) const override {
    return std::make_unique<AffineRows>(format_, profile, head_dim);
  }
  std::vector<std::string> Terms() const override { return AffineTerms(); }
  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    BoundAffineRow(format_, question, x, bound);
  }
  std::vector<double> Parts(const Profile& profile, std::span<const double> x,
                            std::vector<double> total) const override {
    return AffineParts(format_, profile, x, std::move(total));
  }

  // MLX's encoders take different ranges only of groups without a positive element, or with NaN.
  bool SameBound(const Profile& a, const Profile& b, std::span<const double> x) const override {
    if (a == b) return true;
    Profile other = b;
    other.encode = a.encode;
    if (other != a || a.encode == AffineEncoder::kKivi || b.encode == AffineEncoder::kKivi) {
      return false;
    }
    const size_t group = static_cast<size_t>(format_.group_size);
    for (size_t first = 0; first < x.size(); first += group) {
      const auto elements = x.subspan(first, group);
      if (std::none_of(elements.begin(), elements.end(), [](double v) { return v > 0; }) ||
          std::any_of(elements.begin(), elements.end(), [](double v) { return std::isnan(v); })) {
        return false;
      }
    }
    return true;
  }

  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    std::vector<ProfileChange> encodes, decodes;
    AddChanges(profile, CodecChoice::kEncode, &encodes);
    // What is written out is rounded: an exact decode explains nothing that these do not.
    AddChanges(profile, CodecChoice::kDecode, &decodes, {"exact"});
    std::vector<ProfileChange> changes = encodes;
    changes.insert(changes.end(), decodes.begin(), decodes.end());
    for (const ProfileChange& encode : encodes) {
      for (ProfileChange both : decodes) {
        both.profile.encode = encode.profile.encode;
        changes.push_back(std::move(both));
      }
    }
    return changes;
  }

  std::vector<Profile> UndeclaredEncoders(const Profile& profile) const override {
    return ExpectedVariants(FieldOf(CodecChoice::kEncode), profile);
  }

  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    if (profile.encode == AffineEncoder::kKivi) {
      AddMinimumAlternatives(format_, x, tiles);
    } else {
      AddEncodeAlternatives(format_, profile, x, tiles);
    }
  }

 private:
  AffineFormat format_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const AffineFormat& format) {
  return std::make_unique<AffineArithmetic>(format);
}

}  // namespace kvcheck
