#include "reference/formats/codec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "reference/formats/format_arithmetic.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// Channels of rows whose first plane has this width, which is some elements per block and perhaps
// some per row; 0 where it is no whole number of blocks.
int64_t DimOf(const KvFormat& format, int64_t width) {
  const int64_t block = BlockOf(format);
  const int64_t of_one = PlanesOf(format, block)[0].elements;
  const int64_t of_block = PlanesOf(format, 2 * block)[0].elements - of_one;
  const int64_t of_row = of_one - of_block;
  return width > of_row && (width - of_row) % of_block == 0 ? (width - of_row) / of_block * block
                                                            : 0;
}

EncodedRows RowsOf(const KvFormat& format, const TensorMap& tensors,
                   const std::vector<std::string>& names) {
  EncodedRows rows;
  const Planes block = PlanesOf(format, BlockOf(format));
  std::vector<std::string> missing, present;
  for (size_t i = 0; i < block.size(); ++i) {
    if (!tensors.contains(names[i])) missing.push_back(names[i]);
  }
  if (missing.size() > 1) {
    for (const auto& [name, tensor] : tensors) present.push_back(name);
    throw Error(
        ErrorCode::kMissingData,
        fmt::format("{} keeps rows in tensors of which {} are absent; present: {}; add them "
                    "under these names",
                    Print(format), fmt::join(missing, ", "),
                    present.empty() ? "none" : fmt::format("{}", fmt::join(present, ", "))));
  }
  for (size_t i = 0; i < block.size(); ++i) {
    const Tensor& tensor = Get(tensors, names[i]);
    if (tensor.dtype != block[i].dtype) {
      throw Error(ErrorCode::kMissingData, fmt::format("'{}' is {}, its format stores {}", names[i],
                                                       Name(tensor.dtype), Name(block[i].dtype)));
    }
    rows.planes[i] = &tensor;
  }
  const int64_t dim = DimOf(format, rows.planes[0]->shape.RowLength());
  const Planes planes = PlanesOf(format, dim);
  bool agree = dim > 0 || rows.planes[0]->shape.RowLength() == 0;
  for (size_t i = 0; i < planes.size(); ++i) {
    const Shape& shape = rows.planes[i]->shape;
    agree = agree && shape.RowLength() == planes[i].elements &&
            (planes[i].scope != PlaneScope::kRow || shape.RowCount() == rows.RowCount());
  }
  if (!agree) {
    std::vector<std::string> shapes, widths;
    for (size_t i = 0; i < block.size(); ++i) {
      shapes.push_back(fmt::format("{} {}", block[i].name, ToString(rows.planes[i]->shape)));
      widths.push_back(fmt::format("{} of {}", block[i].elements, block[i].name));
    }
    throw Error(ErrorCode::kMissingData,
                fmt::format("{} are not rows of one {} tensor; {} channels have {}",
                            fmt::join(shapes, ", "), Print(format), BlockOf(format),
                            fmt::join(widths, ", ")));
  }
  return rows;
}

Shape WithLastAxis(Shape shape, const Plane& plane, bool is_plain) {
  if (is_plain) return shape;
  if (shape.axes.empty()) shape.axes.push_back({"", 1});
  shape.axes.back() = {std::string(plane.axis), plane.elements};
  return shape;
}

// The planes of one row after the other, as bytes in tensors.
class RowCursor {
 public:
  RowCursor(const KvFormat& format, const EncodedRows& rows, int64_t dim)
      : planes_(PlanesOf(format, dim)), rows_(rows) {}

  RowPlanesView At(int64_t row) {
    for (size_t i = 0; i < planes_.size(); ++i) {
      const size_t bytes = planes_[i].Bytes();
      const size_t at = planes_[i].scope == PlaneScope::kRow ? static_cast<size_t>(row) * bytes : 0;
      at_[i] = rows_.planes[i]->bytes.data() + at;
    }
    return {at_.data(), planes_.size()};
  }

 private:
  Planes planes_;
  EncodedRows rows_;
  std::array<const std::byte*, kMaxPlanes> at_{};
};

// Arithmetic of each head that the format names.
class HeadArithmetic {
 public:
  HeadArithmetic(const KvFormat& format, const Profile& profile, int64_t dim, const Shape& shape)
      : format_(format), shape_(shape) {
    for (int64_t head = 0; head < HeadsOf(format); ++head) {
      heads_.push_back(ArithmeticOf(FormatOfHead(format, head))->MakeRows(profile, dim));
    }
  }
  RowArithmetic& Of(int64_t row) const {
    return *heads_[static_cast<size_t>(HeadOfRow(format_, shape_, row))];
  }

 private:
  KvFormat format_;
  const Shape& shape_;
  std::vector<std::unique_ptr<RowArithmetic>> heads_;
};

void CheckRange(const EncodedRows& rows, int64_t first_row, int64_t row_count) {
  KVCHECK_CHECK(first_row >= 0 && row_count >= 0 && first_row + row_count <= rows.RowCount(),
                "rows outside the stored ones");
}

// Row after row by read(arithmetic of its head, its planes, its place in the result).
template <typename Read>
std::vector<double> ReadRows(const KvFormat& format, const Profile& profile,
                             const EncodedRows& rows, int64_t first_row, int64_t row_count,
                             Read read) {
  CheckRange(rows, first_row, row_count);
  const int64_t dim = RowDim(format, rows);
  const auto length = static_cast<size_t>(dim);
  std::vector<double> out(static_cast<size_t>(row_count) * length);
  const HeadArithmetic arithmetic(format, profile, dim, rows.planes[0]->shape);
  RowCursor cursor(format, rows, dim);
  for (size_t row = 0; row < static_cast<size_t>(row_count); ++row) {
    const int64_t at = first_row + static_cast<int64_t>(row);
    read(arithmetic.Of(at), cursor.At(at), std::span(out).subspan(row * length, length));
  }
  return out;
}

}  // namespace

int64_t HeadOfRow(const KvFormat& format, const Shape& shape, int64_t row) {
  const int64_t heads = HeadsOf(format);
  if (heads == 1) return 0;
  if (shape.axes.size() != 4) return row % heads;
  return row / shape.axes[2].extent % heads;
}

EncodedRows CodecRows(const KvFormat& format, const TensorMap& tensors) {
  return RowsOf(format, tensors, PlaneNames(format));
}

EncodedRows CacheRows(const KvFormat& format, const TensorMap& tensors, const std::string& name) {
  std::vector<std::string> names;
  for (const Plane& plane : PlanesOf(format, BlockOf(format))) {
    names.push_back(PlaneTensor(format, name, plane));
  }
  return RowsOf(format, tensors, names);
}

int64_t RowDim(const KvFormat& format, const EncodedRows& rows) {
  return DimOf(format, rows.planes[0]->shape.RowLength());
}

TensorMap EncodeRows(const KvFormat& format, const Profile& profile, const Tensor& x,
                     const TensorMap& parameters, const RowPlace& place) {
  const int64_t dim = x.shape.RowLength();
  if (!IsPlain(format)) CheckHeadDim(format, dim, "EncodeRows");
  const Planes planes = PlanesOf(format, dim);
  std::vector<Tensor> stored;
  for (const Plane& plane : planes) {
    if (plane.scope == PlaneScope::kTensor) {
      stored.push_back(Get(parameters, std::string(plane.name)));
    } else {
      stored.emplace_back(plane.dtype, WithLastAxis(x.shape, plane, IsPlain(format)));
    }
  }
  const HeadArithmetic rows(format, profile, dim, place.shape == nullptr ? x.shape : *place.shape);
  std::vector<double> values(static_cast<size_t>(dim));
  std::array<std::byte*, kMaxPlanes> at{};
  for (size_t i = 0; i < planes.size(); ++i) at[i] = stored[i].bytes.data();
  const int64_t count = dim == 0 ? 0 : x.ElementCount() / dim;
  for (int64_t row = 0; row < count; ++row) {
    DecodeTo(x, row * dim, values);
    rows.Of(place.first_row + row).Encode(values, {at.data(), planes.size()});
    for (size_t i = 0; i < planes.size(); ++i) {
      if (planes[i].scope == PlaneScope::kRow) at[i] += planes[i].Bytes();
    }
  }
  TensorMap tensors;
  for (size_t i = 0; i < planes.size(); ++i) {
    tensors.emplace(planes[i].name, std::move(stored[i]));
  }
  return tensors;
}

DecodedRows DecodeRows(const KvFormat& format, const Profile& profile, const EncodedRows& rows,
                       int64_t first_row, int64_t row_count) {
  if (IsPlain(format) || profile.decode != DecodeRounding::kExact) {
    return {DecodeToRowType(format, profile, rows, first_row, row_count), {}};
  }
  CheckRange(rows, first_row, row_count);
  const int64_t dim = RowDim(format, rows);
  const auto length = static_cast<size_t>(dim);
  const size_t count = static_cast<size_t>(row_count) * length;
  DecodedRows decoded = {std::vector<double>(count), std::vector<double>(count)};
  const HeadArithmetic arithmetic(format, profile, dim, rows.planes[0]->shape);
  RowCursor cursor(format, rows, dim);
  for (size_t row = 0; row < static_cast<size_t>(row_count); ++row) {
    const int64_t at = first_row + static_cast<int64_t>(row);
    arithmetic.Of(at).DecodeExact(cursor.At(at),
                                  std::span(decoded.hi).subspan(row * length, length),
                                  std::span(decoded.lo).subspan(row * length, length));
  }
  return decoded;
}

StoredBasis BasisOf(const KvFormat& format, int64_t head_dim) {
  return ArithmeticOf(format)->Basis(head_dim);
}

std::vector<double> DecodeRowsInBasis(const KvFormat& format, const Profile& profile,
                                      const EncodedRows& rows, int64_t first_row,
                                      int64_t row_count) {
  return ReadRows(format, profile, rows, first_row, row_count,
                  [](RowArithmetic& arithmetic, RowPlanesView stored, std::span<double> out) {
                    arithmetic.DecodeInBasis(stored, out);
                  });
}

std::vector<double> DecodeToRowType(const KvFormat& format, const Profile& profile,
                                    const EncodedRows& rows, int64_t first_row, int64_t row_count) {
  return ReadRows(format, profile, rows, first_row, row_count,
                  [](RowArithmetic& arithmetic, RowPlanesView stored, std::span<double> out) {
                    arithmetic.DecodeToRowType(stored, out);
                  });
}

std::vector<double> DecodeFreedom(const KvFormat& format, const Profile& profile,
                                  const EncodedRows& rows, int64_t first_row,
                                  std::span<const double> values) {
  const auto arithmetic = ArithmeticOf(format);
  if (!arithmetic->LeavesDecodeOpen(profile) || values.empty()) return {};
  const int64_t dim = RowDim(format, rows);
  const auto length = static_cast<size_t>(dim);
  std::vector<double> bound(values.size());
  RowCursor cursor(format, rows, dim);
  for (size_t at = 0; at < values.size(); at += length) {
    arithmetic->DecodeBound(profile, cursor.At(first_row + static_cast<int64_t>(at / length)),
                            values.subspan(at, length), std::span(bound).subspan(at, length));
  }
  return bound;
}

std::vector<double> CodesAsNumbers(const KvFormat& format, const EncodedRows& rows,
                                   int64_t first_row, int64_t row_count) {
  CheckRange(rows, first_row, row_count);
  const int64_t dim = RowDim(format, rows);
  const auto d = static_cast<size_t>(dim);
  const size_t groups = d / static_cast<size_t>(GridOf(format)->group);
  std::vector<double> out(static_cast<size_t>(row_count) * (d + 2 * groups));
  const auto arithmetic = ArithmeticOf(format)->MakeRows(Profile(), dim);
  RowCursor cursor(format, rows, dim);
  for (size_t row = 0; row < static_cast<size_t>(row_count); ++row) {
    const std::span<double> of_row = std::span(out).subspan(row * (d + 2 * groups), d + 2 * groups);
    arithmetic->ReadCodes(cursor.At(first_row + static_cast<int64_t>(row)), of_row.first(d),
                          of_row.subspan(d, groups), of_row.last(groups));
  }
  return out;
}

}  // namespace kvcheck
