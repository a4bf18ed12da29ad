// NVFP4 blocks as their writers make them, one f32 operation at a time (formats.md, section B): MLX
// on a CPU, and vLLM's cache kernel, which may choose between maxima at 6 and at 4.

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "reference/formats/block_floats.h"
#include "reference/numerics/convert.h"
#include "reference/spec/nvfp4_format.h"

namespace kvcheck {
namespace {

constexpr double kU32 = 0x1p-24;
// vLLM takes reciprocals by rcp.approx.ftz.f32, which is within 2^-23 of the quotient; a correctly
// rounded one differs from it by 3u at most. A scale passes one and is multiplied twice, where each
// operand that differs may move the rounding by 2u: 3 + 2 + 2. A position passes two, of which the
// second one takes the first one's difference, and is multiplied twice: 2 * 3 + 2 * 2.
constexpr double kScaleFreedom = 7 * kU32;
constexpr double kPositionFreedom = 10 * kU32;

double Scale(uint8_t byte) { return Decode(DType::kFloat8E4M3FN, byte); }
uint8_t ScaleByte(double scale) {
  return static_cast<uint8_t>(
      Encode(DType::kFloat8E4M3FN, scale, {.overflow = Overflow::kSaturate}));
}

bool IsMlx(const Profile& profile) { return profile.nvfp4_encode == Nvfp4Encoder::kMlx; }

double LargestOf(std::span<const double> x) {
  double a = 0;
  for (const double value : x) a = std::max(a, std::fabs(value));
  return a;
}

// factor: what positions are divided by.
BlockScale MlxScale(const BlockFloats& format, double a) {
  const double q = RoundTo(format.row, a / 6);
  BlockScale scale;
  scale.byte = ScaleByte(ToFloat32(q / format.global_scale));
  scale.factor = ToFloat32(Scale(scale.byte) * format.global_scale);
  return scale;
}

double Reciprocal(double x) { return ToFloat32(1 / x); }

// factor: what positions are multiplied with.
BlockScale VllmScaleOf(double encode_scale, uint8_t byte) {
  const double scale = Scale(byte);
  return {.byte = byte,
          .factor = scale == 0 ? 0 : Reciprocal(ToFloat32(scale * Reciprocal(encode_scale)))};
}

// Scales with which a magnitude of a becomes `top`, the one of exact reciprocals first.
std::vector<BlockScale> VllmScales(const BlockFloats& format, double a, double top) {
  const double encode_scale = Reciprocal(format.global_scale);
  const double scale = ToFloat32(encode_scale * ToFloat32(a * Reciprocal(top)));
  std::vector<BlockScale> scales = {VllmScaleOf(encode_scale, ScaleByte(scale))};
  for (const double other : {scale * (1 - kScaleFreedom), scale * (1 + kScaleFreedom)}) {
    const uint8_t byte = ScaleByte(other);
    if (byte != scales[0].byte) scales.push_back(VllmScaleOf(encode_scale, byte));
  }
  return scales;
}

// The sum of squared errors that the kernel computes, and how far another order of its operations,
// contracted ones and approximate reciprocals may move it.
struct SquaredError {
  double sum = 0;
  double slack = 0;
};

SquaredError ErrorOf(const BlockScale& scale, std::span<const double> x) {
  const double back = scale.factor == 0 ? 0 : Reciprocal(scale.factor);
  SquaredError error;
  const auto square_of = [&](double value) {
    const double position = ToFloat32(value * scale.factor);
    const double element = Decode(DType::kFloat4E2M1FN, E2M1Code(E2M1Rule::kEven, position));
    const double read = ToFloat32(element * back);
    const double difference = ToFloat32(read - value);
    // read is off by 5u of itself (two reciprocals, two products), the difference and its square by
    // 3u of theirs, the sum of sixteen by 17u.
    const double off = 5 * kU32 * std::fabs(read);
    const double size = std::fabs(difference);
    error.slack += 2 * size * off + off * off + 20 * kU32 * (size + off) * (size + off);
    // At a position that may become either of two elements the squares may differ by their gap.
    const double low =
        Decode(DType::kFloat4E2M1FN, E2M1Code(E2M1Rule::kEven, position * (1 - kPositionFreedom)));
    const double high =
        Decode(DType::kFloat4E2M1FN, E2M1Code(E2M1Rule::kEven, position * (1 + kPositionFreedom)));
    if (low != high) error.slack += 4 * kPositionFreedom * value * value;
    return ToFloat32(difference * difference);
  };
  for (size_t i = 0; i < x.size(); i += 2) {
    const double first = square_of(x[i]);
    error.sum = ToFloat32(error.sum + ToFloat32(first + square_of(x[i + 1])));
  }
  return error;
}

std::vector<BlockScale> Scales(const BlockFloats& format, const Profile& profile,
                               std::span<const double> x) {
  const double a = LargestOf(x);
  if (IsMlx(profile)) return {MlxScale(format, a)};
  std::vector<BlockScale> six = VllmScales(format, a, 6);
  if (profile.nvfp4_encode == Nvfp4Encoder::kVllm) return six;
  std::vector<BlockScale> four = VllmScales(format, a, 4);
  const SquaredError error6 = ErrorOf(six[0], x);
  const SquaredError error4 = ErrorOf(four[0], x);
  const bool takes_four = error4.sum < error6.sum;
  std::vector<BlockScale>& taken = takes_four ? four : six;
  std::vector<BlockScale>& other = takes_four ? six : four;
  const bool is_open = taken.size() > 1 || other.size() > 1 ||
                       std::fabs(error4.sum - error6.sum) <= error4.slack + error6.slack;
  if (is_open) taken.insert(taken.end(), other.begin(), other.end());
  return taken;
}

double Position(const BlockFloats& format, const Profile& profile, const BlockScale& scale,
                double x) {
  if (!IsMlx(profile)) return ToFloat32(x * scale.factor);
  // Where the scale is 0 MLX divides by it: no element is nearest, and the first one is taken.
  return scale.factor == 0 ? 0 : RoundTo(format.row, ToFloat32(x / scale.factor));
}

// Of MLX: the scale times a global one, the quotient in f32 and in the row type. Of vLLM: the
// encode scale, its reciprocal, a product, its reciprocal, a product; approximate reciprocals of
// 2u. One more for the second order.
double PositionError(const BlockFloats& format, const Profile& profile, double t) {
  if (!IsMlx(profile)) return (5 + 2 + 1) * kU32 * t + HalfSmallestSubnormal(DType::kFloat32);
  const double of_scale = format.global_scale == 1 ? 0 : 2 * kU32;
  return (UnitRoundoff(format.row) + of_scale) * (1 + kU32) * t + HalfSmallestSubnormal(format.row);
}

double PositionFreedom(const Profile& profile) { return IsMlx(profile) ? 0 : kPositionFreedom; }

uint8_t Code(const BlockFloats&, const Profile& profile, double position) {
  return E2M1Code(IsMlx(profile) ? E2M1Rule::kDown : E2M1Rule::kEven, position);
}

void AddWriters(const Profile& profile, std::vector<ProfileChange>* changes) {
  AddChanges(profile, CodecChoice::kNvfp4Encode, changes);
}

// vLLM's layout of the scales of V for SM100: of 4 tokens (t, s) in [4][S] stands at row s / (S/4),
// column 4 (s mod S/4) + t.
constexpr size_t kTokens = static_cast<size_t>(Nvfp4Format::kSwizzledTokens);
size_t SwizzledPlace(size_t linear, size_t scales_of_tokens) {
  const size_t scales = scales_of_tokens / kTokens;
  const size_t part = scales / kTokens;
  const size_t t = linear / scales, s = linear % scales;
  return s / part * scales + s % part * kTokens + t;
}
void Swizzle(std::span<const std::byte> linear, std::span<std::byte> stored) {
  for (size_t i = 0; i < linear.size(); ++i) stored[SwizzledPlace(i, linear.size())] = linear[i];
}
void Unswizzle(std::span<const std::byte> stored, std::span<std::byte> linear) {
  for (size_t i = 0; i < linear.size(); ++i) linear[i] = stored[SwizzledPlace(i, linear.size())];
}

// The scales of 4 heads of so many pages each, in the order of V on SM100 with heads in place of
// tokens. own: as they should be, swizzled over the tokens of each page.
constexpr int64_t kHeads = Nvfp4Format::kSwizzledTokens;
void SwizzleOverHeads(size_t pages, std::span<const std::byte> own, std::span<std::byte> stored) {
  const auto heads = static_cast<size_t>(kHeads);
  const size_t row = own.size() / (heads * pages);
  const size_t scales = row / kTokens;
  std::vector<std::byte> linear(heads * scales), swizzled(heads * scales);
  for (size_t page = 0; page < pages; ++page) {
    for (size_t token = 0; token < kTokens; ++token) {
      for (size_t head = 0; head < heads; ++head) {
        const size_t first = (head * pages + page) * row;
        for (size_t s = 0; s < scales; ++s) {
          linear[head * scales + s] = own[first + SwizzledPlace(token * scales + s, row)];
        }
      }
      Swizzle(linear, swizzled);
      for (size_t head = 0; head < heads; ++head) {
        std::copy_n(swizzled.begin() + static_cast<std::ptrdiff_t>(head * scales), scales,
                    stored.begin() +
                        static_cast<std::ptrdiff_t>((head * pages + page) * row + token * scales));
      }
    }
  }
}

std::vector<PlaneOrder> Orders(int64_t head_dim) {
  if (head_dim == 0 || head_dim % (Nvfp4Format::kBlock * 4) != 0) return {};
  PlaneOrder order;
  order.name = "scales swizzled for SM100";
  order.text =
      "these bytes are NVFP4 with swizzled V scales, 4 tokens interleaved in the order of V on "
      "SM100 (nvfp4:swizzled)";
  order.plane = 1;
  order.rows = Nvfp4Format::kSwizzledTokens;
  order.permute = Swizzle;
  return {order};
}

// Rows of four tokens whose scales are swizzled, around the arithmetic of linear ones: blocks know
// nothing of tokens.
class SwizzledRows : public RowArithmetic {
 public:
  SwizzledRows(std::unique_ptr<RowArithmetic> linear, int64_t row_elements)
      : linear_(std::move(linear)),
        scales_(static_cast<size_t>(row_elements / Nvfp4Format::kBlock)) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    linear_->Encode(x, std::array{stored[0], scales_.data()});
    Swizzle(scales_, std::span(stored[1], scales_.size()));
  }
  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    linear_->DecodeExact(Linear(stored), hi, lo);
  }
  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    linear_->DecodeToRowType(Linear(stored), out);
  }
  void ReadCodes(RowPlanesView stored, std::span<double> codes, std::span<double> scales,
                 std::span<double> biases) override {
    linear_->ReadCodes(Linear(stored), codes, scales, biases);
  }

 private:
  RowPlanesView Linear(RowPlanesView stored) {
    Unswizzle(std::span(stored[1], scales_.size()), scales_);
    planes_ = {stored[0], scales_.data()};
    return planes_;
  }

  std::unique_ptr<RowArithmetic> linear_;
  std::vector<std::byte> scales_;
  std::array<const std::byte*, 2> planes_{};
};

class SwizzledArithmetic : public FormatArithmetic {
 public:
  explicit SwizzledArithmetic(const Nvfp4Format& format)
      : linear_(ArithmeticOf(format.OfToken())) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t head_dim) const override {
    return std::make_unique<SwizzledRows>(linear_->MakeRows(profile, head_dim), head_dim);
  }
  std::vector<std::string> Terms() const override { return linear_->Terms(); }
  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    linear_->Bound(question, x, bound);
  }
  std::vector<double> Parts(const Profile& profile, std::span<const double> x,
                            std::vector<double> total) const override {
    return linear_->Parts(profile, x, std::move(total));
  }
  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    return linear_->OtherProfiles(profile);
  }
  std::vector<Profile> UndeclaredEncoders(const Profile& profile) const override {
    return linear_->UndeclaredEncoders(profile);
  }
  std::vector<PlaneOrder> OtherOrders(int64_t, int64_t rows) const override {
    std::vector<PlaneOrder> orders(1);
    orders[0].name = "linear scales";
    orders[0].text =
        "these bytes are NVFP4 with linear scales, token after token (nvfp4 without swizzled)";
    orders[0].plane = 1;
    orders[0].rows = 1;
    orders[0].permute = Unswizzle;
    // Rows are pages of 4 tokens, those of a head one after another: of as many pages a head as
    // the number of rows may have, few of which explain any bytes.
    constexpr int64_t kMostPages = 4096;
    for (int64_t pages = 1; pages <= std::min(kMostPages, rows / kHeads); ++pages) {
      if (rows % (kHeads * pages) != 0) continue;
      PlaneOrder order;
      order.name = "scales swizzled over heads";
      order.text = "the V scales were swizzled over 4 heads, whose pages of 4 tokens are " +
                   std::to_string(pages) +
                   " a head, in place of 4 tokens: an axis of heads taken for that of tokens";
      order.plane = 1;
      order.rows = kHeads * pages;
      order.permute = [pages](std::span<const std::byte> own, std::span<std::byte> stored) {
        SwizzleOverHeads(static_cast<size_t>(pages), own, stored);
      };
      orders.push_back(std::move(order));
    }
    return orders;
  }
  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    AddTileAlternatives(profile, x, static_cast<int64_t>(x.size()), tiles);
  }
  // Those of scales move with the scales.
  void AddTileAlternatives(const Profile& profile, std::span<const double> x, int64_t row_elements,
                           std::vector<ExpectedTile>* tiles) const override {
    std::vector<Alternative>& of_scales = (*tiles)[1].alternatives;
    const size_t before = of_scales.size();
    linear_->AddAlternatives(profile, x, tiles);
    const auto of_row = static_cast<size_t>(row_elements / Nvfp4Format::kBlock);
    for (size_t i = before; i < of_scales.size(); ++i) {
      const auto element = static_cast<size_t>(of_scales[i].element);
      const size_t place = SwizzledPlace(element % of_row, of_row);
      of_scales[i].element = static_cast<int64_t>(element / of_row * of_row + place);
    }
  }

 private:
  std::unique_ptr<FormatArithmetic> linear_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Nvfp4Format& format) {
  if (format.swizzled) return std::make_unique<SwizzledArithmetic>(format);
  return MakeBlockFloatArithmetic({.block = static_cast<size_t>(Nvfp4Format::kBlock),
                                   .element = DType::kFloat4E2M1FN,
                                   .scale = DType::kFloat8E4M3FN,
                                   .row = format.row_dtype,
                                   .global_scale = format.global_scale,
                                   .scales = Scales,
                                   .position = Position,
                                   .position_error = PositionError,
                                   .position_freedom = PositionFreedom,
                                   .code = Code,
                                   .zeros_are_free = [](const Profile&) { return false; },
                                   .add_writers = AddWriters,
                                   .orders = Orders},
                                  format.global_scale != 1);
}

}  // namespace kvcheck
