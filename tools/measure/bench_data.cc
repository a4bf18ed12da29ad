#include "tools/measure/bench_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "golden/file_index.h"
#include "reference/data/generator.h"
#include "reference/data/row_regime.h"
#include "reference/numerics/convert.h"
#include "reference/numerics/exp.h"
#include "reference/spec/error.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/stored_tensors.h"
#include "tools/report/shown_text.h"

namespace kvcheck {
namespace {

// One channel of every 32 (of what is left, in the last ones) is 10 to 30, the others 1.
std::vector<double> OutlierFactors(uint64_t seed, std::string_view stream, int64_t dim) {
  constexpr int64_t kUnit = 32;
  Generator random(seed, std::string(stream) + " outliers", 0);
  std::vector<double> factors(static_cast<size_t>(dim), 1.0);
  for (int64_t first = 0; first < dim; first += kUnit) {
    const auto channels = static_cast<uint64_t>(std::min(kUnit, dim - first));
    factors[static_cast<size_t>(first) + random.Below(channels)] = 10 + 20 * random.Uniform();
  }
  return factors;
}

std::string TensorNames(const StoredFile& file) {
  constexpr size_t kMost = 20;
  const std::vector<ListedTensor> tensors = ListTensors(file.source().index());
  std::string names;
  for (size_t i = 0; i < std::min(kMost, tensors.size()); ++i) {
    names += (i == 0 ? "" : ", ") + NameText(tensors[i].path);
  }
  if (tensors.size() > kMost) names += fmt::format(", {} more", tensors.size() - kMost);
  return names.empty() ? "none" : names;
}

Tensor ReadPlace(const std::string& place) {
  const size_t colon = place.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == place.size()) {
    throw Error(ErrorCode::kUsage, "a stored tensor is written FILE:NAME", place);
  }
  const StoredFile file(place.substr(0, colon));
  std::string name = place.substr(colon + 1);
  if (!name.starts_with('/')) name.insert(0, "/");
  if (!file.source().index().objects.contains(name)) {
    throw Error(ErrorCode::kMissingData, "no such tensor; the file has " + TensorNames(file),
                NameText(place));
  }
  const ObjectRecord& record = DatasetRecord(file.source(), name);
  CheckFitsMemory(static_cast<double>(record.shape.ElementCount()) *
                      static_cast<double>(SizeInBytes(record.dtype)),
                  place);
  Tensor tensor = ReadTensor(file.source(), name);
  if (!IsFloat(tensor.dtype) || !FloatTypeOf(tensor.dtype).is_signed) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("its elements are {}, no floats; where integers hold the codes of a "
                            "float type, the attribute kv_dtype says which",
                            Name(tensor.dtype)),
                place);
  }
  if (tensor.shape.axes.size() < 2 || tensor.ElementCount() == 0) {
    throw Error(ErrorCode::kUnsupported, "rows have at least two axes: tokens, then head_dim",
                place);
  }
  std::vector<double> row(static_cast<size_t>(tensor.shape.RowLength()));
  for (int64_t r = 0; r < tensor.shape.RowCount(); ++r) {
    DecodeTo(tensor, r * tensor.shape.RowLength(), row);
    for (const double x : row) {
      if (!std::isfinite(x)) {
        throw Error(
            ErrorCode::kUnsupported,
            fmt::format("row {} holds {}: the error of a row that is not finite is none", r, x),
            place);
      }
    }
  }
  return tensor;
}

}  // namespace

std::vector<std::string_view> BenchRegimes() {
  std::vector<std::string_view> regimes = {kNormalData, kOutlierData};
  for (const std::string_view regime : RowRegimes()) regimes.push_back(regime);
  return regimes;
}

std::vector<double> NormalRow(uint64_t seed, std::string_view stream, int64_t row, int64_t dim) {
  Generator random(seed, stream, static_cast<uint64_t>(row));
  std::vector<double> values;
  values.reserve(static_cast<size_t>(dim) + 1);
  while (static_cast<int64_t>(values.size()) < dim) {
    const double u = 2 * random.Uniform() - 1;
    const double v = 2 * random.Uniform() - 1;
    const double s = u * u + v * v;
    if (s >= 1 || s == 0) continue;
    const double radius = std::sqrt(-2 * LogDouble(s) / s);
    values.push_back(u * radius);
    values.push_back(v * radius);
  }
  values.resize(static_cast<size_t>(dim));
  return values;
}

Tensor DrawRows(std::string_view regime, uint64_t seed, std::string_view stream, DType dtype,
                int64_t rows, int64_t dim) {
  if (regime != kNormalData && regime != kOutlierData) {
    for (const std::string_view known : RowRegimes()) {
      if (regime == known) return GenerateRows(regime, seed, dtype, rows, dim);
    }
    ThrowUnknownRegime(regime, "rows", BenchRegimes());
  }
  Tensor tensor(dtype, {{"", rows}, {"", dim}});
  const size_t row_bytes = static_cast<size_t>(dim) * SizeInBytes(dtype);
  std::vector<double> factors(static_cast<size_t>(dim), 1.0);
  if (regime == kOutlierData) factors = OutlierFactors(seed, stream, dim);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> row = NormalRow(seed, stream, r, dim);
    for (size_t i = 0; i < row.size(); ++i) row[i] *= factors[i];
    EncodeFrom(row, dtype, tensor.bytes.data() + static_cast<size_t>(r) * row_bytes);
  }
  return tensor;
}

KvRows ReadKvRows(const std::vector<std::string>& places) {
  KvRows rows;
  rows.k = ReadPlace(places.at(0));
  rows.v = places.size() > 1 ? ReadPlace(places[1]) : rows.k;
  const auto tokens = [](const Tensor& t) { return t.shape.axes[t.shape.axes.size() - 2].extent; };
  rows.tokens = tokens(rows.k);
  rows.heads = rows.k.shape.RowCount() / rows.tokens;
  if (tokens(rows.v) != rows.tokens || rows.v.shape.RowCount() != rows.k.shape.RowCount()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("K is {} and V {}: they have as many heads and tokens as each other",
                            ToString(rows.k.shape), ToString(rows.v.shape)),
                places.back());
  }
  return rows;
}

}  // namespace kvcheck
