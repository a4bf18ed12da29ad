#include "reference/formats/codec_tiles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "reference/formats/codec.h"
#include "reference/formats/error_bound.h"
#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr int64_t kTileElements = int64_t{1} << 16;

std::vector<double> ValuesOf(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  return values;
}

void AddEncodeAlternatives(const AffineFormat& affine, const Profile& profile,
                           const std::vector<double>& x, std::vector<ExpectedTile>* tiles) {
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

void SetAffineStanding(size_t row, const RowBound& bound, ExpectedTile* tile) {
  const size_t dim = bound.total.size();
  const auto undefined =
      static_cast<size_t>(std::count(bound.undefined.begin(), bound.undefined.end(), true));
  const auto overflows =
      static_cast<size_t>(std::count(bound.overflows.begin(), bound.overflows.end(), true));
  if (undefined == dim) {
    tile->standing[row] = Standing::kUndefined;
    tile->standing_reason[row] = kNotFinite;
    return;
  }
  if (overflows > undefined) {
    tile->standing[row] = Standing::kUnbounded;
    tile->standing_reason[row] = kCodecOverflow;
    return;
  }
  if (undefined == 0) return;
  tile->undefined.resize(tile->value.size());
  tile->undefined_reason = kNotFinite;
  for (size_t i = 0; i < dim; ++i) tile->undefined[row * dim + i] = bound.undefined[i] ? 1 : 0;
}

void FillPlainOverflow(const RoundTripClaim& claim, std::span<const double> x, size_t row,
                       const RowBound& bound, ExpectedTile* tile) {
  const DType stored = std::get<PlainFormat>(claim.format).dtype;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!bound.overflows[i]) continue;
    // Not a distance but a rule: NaN, infinity or the largest finite value, exactly.
    const size_t at = row * x.size() + i;
    tile->value[at] =
        PlainRoundTrip(stored, claim.read.value_or(stored), claim.profiles.front(), x[i]);
    tile->bound[at] = 0;
    if (std::isnan(x[i]) && std::isfinite(tile->value[at])) {
      tile->alternatives.push_back({.element = static_cast<int64_t>(at),
                                    .value = -tile->value[at],
                                    .any = false,
                                    .reason = kNanSign});
    }
  }
}

// Of two bounds the larger, element by element, with its terms.
void TakeLarger(const RowBound& other, RowBound* bound) {
  for (size_t i = 0; i < bound->total.size(); ++i) {
    bound->overflows[i] = bound->overflows[i] || other.overflows[i];
    bound->undefined[i] = bound->undefined[i] || other.undefined[i];
    bound->wrong_code[i] = std::min(bound->wrong_code[i], other.wrong_code[i]);
    if (!(other.total[i] > bound->total[i])) continue;
    bound->total[i] = other.total[i];
    for (size_t term = 0; term < bound->terms.size(); ++term) {
      bound->terms[term][i] = other.terms[term][i];
    }
  }
}

// Whether a profile has the first one's bound for these rows: the encoders take different ranges
// only of groups without a positive element, or with NaN.
bool IsLikeTheFirst(const RoundTripClaim& claim, Profile other, std::span<const double> x) {
  const auto* affine = std::get_if<AffineFormat>(&claim.format);
  other.encode = claim.profiles.front().encode;
  if (affine == nullptr || other != claim.profiles.front()) return false;
  const size_t group = static_cast<size_t>(affine->group_size);
  for (size_t first = 0; first < x.size(); first += group) {
    const auto elements = x.subspan(first, group);
    if (std::none_of(elements.begin(), elements.end(), [](double v) { return v > 0; }) ||
        std::any_of(elements.begin(), elements.end(), [](double v) { return std::isnan(v); })) {
      return false;
    }
  }
  return true;
}

RowBound BoundOf(const RoundTripClaim& claim, std::span<const double> x) {
  const auto under = [&](const Profile& profile) {
    return RoundTripBound(claim.format, profile, profile.decode, claim.given, claim.read, x);
  };
  RowBound bound = under(claim.profiles.front());
  for (size_t k = 1; k < claim.profiles.size(); ++k) {
    if (IsLikeTheFirst(claim, claim.profiles[k], x)) continue;
    TakeLarger(under(claim.profiles[k]), &bound);
  }
  return bound;
}

}  // namespace

const std::vector<std::string>& CodecReasons() {
  static const std::vector<std::string> reasons = {
      "the word holds the code of a NaN element, which the format does not define; its other codes "
      "are as they must be",
      "the group holds an infinity or only NaN: its scale is NaN and its codes carry no meaning",
      "the GPU encoders do not define a group with NaN or infinity",
      "the stored value is the real number zero, which has no sign",
      "NaN has no sign, and this profile makes a signed number of it",
      "NaN or infinity of the row, which the affine format does not keep, or beside it in its "
      "group",
      "the rounded scale, product or sum of the row may overflow the row type"};
  return reasons;
}

std::vector<ProfileChange> OtherCodecProfiles(const KvFormat& format, const Profile& profile) {
  std::vector<ProfileChange> changes;
  if (const auto* plain = std::get_if<PlainFormat>(&format)) {
    if (SizeInBytes(plain->dtype) != 1) return changes;
    for (const Fp8Overflow overflow :
         {Fp8Overflow::kNan, Fp8Overflow::kSaturate, Fp8Overflow::kSaturateAll}) {
      if (overflow == profile.fp8_overflow) continue;
      ProfileChange change = {fmt::format("fp8_overflow={} instead of fp8_overflow={}",
                                          Name(overflow), Name(profile.fp8_overflow)),
                              profile};
      change.profile.fp8_overflow = overflow;
      changes.push_back(std::move(change));
    }
    return changes;
  }
  const auto add = [&](AffineEncoder encode, DecodeRounding decode) {
    std::vector<std::string> parts;
    if (encode != profile.encode) {
      parts.push_back(
          fmt::format("encode={} instead of encode={}", Name(encode), Name(profile.encode)));
    }
    if (decode != profile.decode) {
      parts.push_back(
          fmt::format("decode={} instead of decode={}", Name(decode), Name(profile.decode)));
    }
    if (parts.empty()) return;
    ProfileChange change = {fmt::format("{}", fmt::join(parts, " and ")), profile};
    change.profile.encode = encode;
    change.profile.decode = decode;
    changes.push_back(std::move(change));
  };
  const AffineEncoder other =
      profile.encode == AffineEncoder::kMlxCpu ? AffineEncoder::kMlxGpu : AffineEncoder::kMlxCpu;
  add(other, profile.decode);
  // What is written out is rounded: an exact decode explains nothing that these do not.
  std::vector<DecodeRounding> decodes = {DecodeRounding::kTwoRoundings,
                                         DecodeRounding::kOneRounding};
  std::erase(decodes, profile.decode);
  for (const DecodeRounding decode : decodes) add(profile.encode, decode);
  for (const DecodeRounding decode : decodes) add(other, decode);
  return changes;
}

int64_t CodecRowsPerTile(int64_t head_dim) {
  return std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, head_dim));
}

ExpectedTile RoundTripTile(const RoundTripClaim& claim, std::vector<double> x, int64_t head_dim,
                           bool terms) {
  const size_t size = x.size();
  const size_t dim = static_cast<size_t>(head_dim);
  const size_t rows = size / dim;
  ExpectedTile tile;
  tile.value = std::move(x);
  tile.bound.assign(size, 0.0);
  tile.mass.assign(size, 0.0);
  if (claim.names_wrong_codes) tile.least_fault.assign(size, 0.0);
  tile.standing.assign(rows, Standing::kJudged);
  tile.standing_reason.assign(rows, 0);
  if (terms) {
    tile.terms.assign(BoundTerms(claim.format).size(), std::vector<double>(size, 0.0));
  }
  for (size_t row = 0; row < rows; ++row) {
    const size_t at = row * dim;
    const std::vector<double> of_row(tile.value.begin() + static_cast<std::ptrdiff_t>(at),
                                     tile.value.begin() + static_cast<std::ptrdiff_t>(at + dim));
    const RowBound bound = BoundOf(claim, of_row);
    for (size_t i = 0; i < dim; ++i) {
      tile.bound[at + i] = bound.total[i];
      tile.mass[at + i] = std::isfinite(of_row[i]) ? std::fabs(of_row[i]) : 0.0;
      if (claim.names_wrong_codes) tile.least_fault[at + i] = bound.wrong_code[i];
      for (size_t term = 0; term < tile.terms.size(); ++term) {
        tile.terms[term][at + i] = bound.terms[term][i];
      }
    }
    if (IsPlain(claim.format)) {
      FillPlainOverflow(claim, of_row, row, bound, &tile);
    } else {
      SetAffineStanding(row, bound, &tile);
    }
  }
  return tile;
}

std::vector<ExpectedTile> EncodedTiles(const KvFormat& format, const Profile& profile,
                                       const Tensor& x) {
  const TensorMap encoded = EncodeRows(format, profile, x);
  std::vector<ExpectedTile> tiles;
  for (const char* name : {"codes", "scales", "biases"}) {
    const auto found = encoded.find(name);
    if (found == encoded.end()) continue;
    ExpectedTile tile;
    tile.value = ValuesOf(found->second);
    tile.bound.assign(tile.value.size(), 0.0);
    tiles.push_back(std::move(tile));
  }
  if (const auto* affine = std::get_if<AffineFormat>(&format)) {
    AddEncodeAlternatives(*affine, profile, ValuesOf(x), &tiles);
  }
  return tiles;
}

}  // namespace kvcheck
