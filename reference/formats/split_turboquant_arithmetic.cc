// Turboquant with half a bit: the arithmetic of two halves of the channels, each a turboquant
// format of its own, put together. Nothing is computed here: what is stored, bounded and left open
// of an element is that of its half.

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "reference/formats/turboquant_writers.h"
#include "reference/spec/split_turboquant_format.h"

namespace kvcheck {
namespace {

// Of a row of any number of groups, which elements each half has, in the order of its own row.
struct HalfOfRow {
  std::vector<size_t> elements;

  HalfOfRow(const SplitTurboquantFormat& format, bool high, size_t row_elements) {
    const auto group = static_cast<size_t>(format.group_size);
    for (size_t i = 0; i < row_elements; ++i) {
      const size_t channel = i % group;
      if (((format.high[channel / 32] >> channel % 32 & 1) != 0) == high) elements.push_back(i);
    }
  }
  std::vector<double> Gather(std::span<const double> row) const {
    std::vector<double> part;
    part.reserve(elements.size());
    for (const size_t i : elements) part.push_back(row[i]);
    return part;
  }
  void Scatter(std::span<const double> part, std::span<double> row) const {
    for (size_t i = 0; i < elements.size(); ++i) row[elements[i]] = part[i];
  }
};

struct Half {
  HalfOfRow place;
  Planes planes;  // of the half's own row
  KvFormat format;

  Half(const SplitTurboquantFormat& split, bool high, size_t row_elements)
      : place(split, high, row_elements), format(high ? split.High() : split.Low()) {
    planes = PlanesOf(format, static_cast<int64_t>(place.elements.size()));
  }
};

// The halves of a row, low and high.
std::array<Half, 2> HalvesOf(const SplitTurboquantFormat& format, size_t row_elements) {
  return {Half(format, false, row_elements), Half(format, true, row_elements)};
}

// Calls use(half, its planes) for both halves of a row whose planes are these: the low one's first.
template <typename Byte, typename Use>
void ForEachHalf(const std::array<Half, 2>& halves, std::span<Byte* const> stored, Use use) {
  std::array<Byte*, kMaxPlanes> at{};
  std::copy(stored.begin(), stored.end(), at.begin());
  for (size_t h = 0; h < halves.size(); ++h) {
    use(h, std::span<Byte* const>(at.data(), stored.size()));
    for (size_t p = 0; p < stored.size(); ++p) at[p] += halves[h].planes[p].Bytes();
  }
}

class SplitTurboquantRows : public RowArithmetic {
 public:
  SplitTurboquantRows(const SplitTurboquantFormat& format, const Profile& profile, int64_t head_dim)
      : halves_(HalvesOf(format, static_cast<size_t>(head_dim))) {
    for (size_t h = 0; h < halves_.size(); ++h) {
      rows_[h] = ArithmeticOf(halves_[h].format)->MakeRows(profile, head_dim / 2);
    }
  }

  void Encode(std::span<const double> x, RowPlanes stored) override {
    ForEachHalf(halves_, stored, [&](size_t h, RowPlanes planes) {
      rows_[h]->Encode(halves_[h].place.Gather(x), planes);
    });
  }
  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    ForEachHalf(halves_, stored, [&](size_t h, RowPlanesView planes) {
      std::vector<double> high_part(halves_[h].place.elements.size());
      std::vector<double> low_part(lo.empty() ? 0 : high_part.size());
      rows_[h]->DecodeExact(planes, high_part, low_part);
      halves_[h].place.Scatter(high_part, hi);
      if (!lo.empty()) halves_[h].place.Scatter(low_part, lo);
    });
  }
  void DecodeInBasis(RowPlanesView stored, std::span<double> out) override {
    ForEachHalf(halves_, stored, [&](size_t h, RowPlanesView planes) {
      std::vector<double> part(halves_[h].place.elements.size());
      rows_[h]->DecodeInBasis(planes, part);
      halves_[h].place.Scatter(part, out);
    });
  }
  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    ForEachHalf(halves_, stored, [&](size_t h, RowPlanesView planes) {
      std::vector<double> part(halves_[h].place.elements.size());
      rows_[h]->DecodeToRowType(planes, part);
      halves_[h].place.Scatter(part, out);
    });
  }

 private:
  std::array<Half, 2> halves_;
  std::array<std::unique_ptr<RowArithmetic>, 2> rows_;
};

class SplitTurboquantArithmetic : public FormatArithmetic {
 public:
  explicit SplitTurboquantArithmetic(const SplitTurboquantFormat& format)
      : format_(format), of_half_{ArithmeticOf(format.Low()), ArithmeticOf(format.High())} {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t head_dim) const override {
    return std::make_unique<SplitTurboquantRows>(format_, profile, head_dim);
  }
  StoredBasis Basis(int64_t head_dim) const override {
    StoredBasis basis;
    const auto halves = HalvesOf(format_, static_cast<size_t>(head_dim));
    for (size_t h = 0; h < halves.size(); ++h) {
      for (RotatedBlock& block : of_half_[h]->Basis(head_dim / 2).blocks) {
        for (size_t& channel : block.channels) channel = halves[h].place.elements[channel];
        basis.blocks.push_back(std::move(block));
      }
    }
    return basis;
  }
  std::vector<std::string> Terms() const override { return of_half_[0]->Terms(); }

  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    const auto halves = HalvesOf(format_, x.size());
    for (size_t h = 0; h < halves.size(); ++h) {
      const std::vector<size_t>& elements = halves[h].place.elements;
      RowBound part;
      part.total.resize(elements.size());
      part.overflows.resize(elements.size());
      part.undefined.resize(elements.size());
      part.wrong_code.resize(elements.size());
      part.terms.assign(bound->terms.size(), std::vector<double>(elements.size()));
      of_half_[h]->Bound(question, halves[h].place.Gather(x), &part);
      for (size_t i = 0; i < elements.size(); ++i) {
        const size_t to = elements[i];
        bound->total[to] = part.total[i];
        bound->overflows[to] = part.overflows[i];
        bound->undefined[to] = part.undefined[i];
        bound->wrong_code[to] = part.wrong_code[i];
        for (size_t t = 0; t < part.terms.size(); ++t) bound->terms[t][to] = part.terms[t][i];
      }
    }
  }
  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    return of_half_[0]->OtherProfiles(profile);
  }
  std::vector<OtherWriter> OtherWriters() const override {
    return OtherTurboquantWriters(format_, OtherSigns(format_.seed, "signs", false),
                                  [](const SplitTurboquantFormat& other, TurboquantBasis) {
                                    return std::make_shared<const SplitTurboquantArithmetic>(other);
                                  });
  }
  bool LeavesDecodeOpen(const Profile& profile) const override {
    return of_half_[0]->LeavesDecodeOpen(profile);
  }
  void DecodeBound(const Profile& profile, RowPlanesView stored, std::span<const double> y,
                   std::span<double> bound) const override {
    const auto halves = HalvesOf(format_, y.size());
    ForEachHalf(halves, stored, [&](size_t h, RowPlanesView planes) {
      const std::vector<double> values = halves[h].place.Gather(y);
      std::vector<double> part(values.size());
      of_half_[h]->DecodeBound(profile, planes, values, part);
      halves[h].place.Scatter(part, bound);
    });
  }
  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    AddTileAlternatives(profile, x, static_cast<int64_t>(x.size()), tiles);
  }
  void AddTileAlternatives(const Profile& profile, std::span<const double> x, int64_t row_elements,
                           std::vector<ExpectedTile>* tiles) const override {
    const auto length = static_cast<size_t>(row_elements);
    if (length == 0) return;
    const auto halves = HalvesOf(format_, length);
    std::vector<size_t> at(tiles->size(), 0);  // in each plane, of the row's half
    for (size_t first = 0; first + length <= x.size(); first += length) {
      for (size_t h = 0; h < halves.size(); ++h) {
        std::vector<ExpectedTile> parts(tiles->size());
        for (size_t p = 0; p < parts.size(); ++p) {
          const auto begin = (*tiles)[p].value.begin() + static_cast<std::ptrdiff_t>(at[p]);
          parts[p].value.assign(begin, begin + halves[h].planes[p].elements);
        }
        of_half_[h]->AddAlternatives(profile, halves[h].place.Gather(x.subspan(first, length)),
                                     &parts);
        for (size_t p = 0; p < parts.size(); ++p) {
          for (Alternative& alternative : parts[p].alternatives) {
            alternative.element += static_cast<int64_t>(at[p]);
            (*tiles)[p].alternatives.push_back(alternative);
          }
          at[p] += static_cast<size_t>(halves[h].planes[p].elements);
        }
      }
    }
  }

 private:
  SplitTurboquantFormat format_;
  std::array<std::unique_ptr<FormatArithmetic>, 2> of_half_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const SplitTurboquantFormat& format) {
  return std::make_unique<SplitTurboquantArithmetic>(format);
}

}  // namespace kvcheck
