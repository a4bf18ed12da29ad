// Rows of affine formats with a residual: what has left it is coded as KIVI writes values
// (affine_arithmetic.cc, encode=kivi), what is in it is the vector itself, and of both kinds every
// row is read by its bytes alone. Source: formats.md, section A.

#include <algorithm>
#include <cstring>

#include "reference/formats/format_arithmetic.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

enum ResidualPlane : size_t { kCodes, kScales, kBiases, kVectors };

Profile OfKivi(Profile profile) {
  profile.encode = AffineEncoder::kKivi;
  return profile;
}

class ResidualAffineRows : public RowArithmetic {
 public:
  ResidualAffineRows(const ResidualAffineFormat& format, const Profile& profile, int64_t head_dim)
      : format_(format),
        coded_(MakeArithmetic(format.coded)->MakeRows(OfKivi(profile), head_dim)),
        planes_(format.PlanesOf(head_dim)),
        values_(static_cast<size_t>(head_dim)) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    for (size_t i = 0; i < planes_.size(); ++i) std::memset(stored[i], 0, planes_[i].Bytes());
    if (format_.residual > 0) return coded_->Encode(x, stored.first(kVectors));
    std::copy(x.begin(), x.end(), values_.begin());
    RoundAll(values_, format_.RowType());
    EncodeFrom(values_, format_.RowType(), stored[kVectors]);
  }

  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    coded_->DecodeExact(stored.first(kVectors), hi, lo);
    ForEachVectorGroup(stored, [&](size_t first, size_t count) {
      std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(first), count,
                  hi.begin() + static_cast<std::ptrdiff_t>(first));
      if (!lo.empty()) std::fill_n(lo.begin() + static_cast<std::ptrdiff_t>(first), count, 0.0);
    });
  }

  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    coded_->DecodeToRowType(stored.first(kVectors), out);
    ForEachVectorGroup(stored, [&](size_t first, size_t count) {
      std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(first), count,
                  out.begin() + static_cast<std::ptrdiff_t>(first));
    });
  }

 private:
  // visit(first channel, channels) of every group that is read from the vector, which is in
  // values_.
  template <typename Visit>
  void ForEachVectorGroup(RowPlanesView stored, Visit visit) {
    DecodeBytes(stored[kVectors], format_.RowType(), values_);
    const auto size = static_cast<size_t>(format_.coded.group_size);
    const size_t bytes = SizeInBytes(format_.RowType());
    for (size_t g = 0; g * size < values_.size(); ++g) {
      double scale = 0, bias = 0;
      DecodeBytes(stored[kScales] + g * bytes, format_.RowType(), {&scale, 1});
      DecodeBytes(stored[kBiases] + g * bytes, format_.RowType(), {&bias, 1});
      if (scale == 0 && bias == 0) visit(g * size, size);
    }
  }

  ResidualAffineFormat format_;
  std::unique_ptr<RowArithmetic> coded_;
  Planes planes_;
  std::vector<double> values_;
};

// Bounds and alternatives are those of the codes: of a row by itself nobody asks.
class ResidualAffineArithmetic : public FormatArithmetic {
 public:
  explicit ResidualAffineArithmetic(const ResidualAffineFormat& format)
      : format_(format), coded_(MakeArithmetic(format.coded)) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t head_dim) const override {
    return std::make_unique<ResidualAffineRows>(format_, profile, head_dim);
  }
  std::vector<std::string> Terms() const override { return coded_->Terms(); }
  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    const Profile kivi = OfKivi(question.profile);
    coded_->Bound({kivi, question.decode, question.given, question.read}, x, bound);
  }
  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    std::vector<ProfileChange> changes;
    AddChanges(profile, CodecChoice::kDecode, &changes, {"exact"});
    return changes;
  }
  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    coded_->AddAlternatives(OfKivi(profile), x, tiles);
  }

 private:
  ResidualAffineFormat format_;
  std::unique_ptr<FormatArithmetic> coded_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const ResidualAffineFormat& format) {
  return std::make_unique<ResidualAffineArithmetic>(format);
}

}  // namespace kvcheck
