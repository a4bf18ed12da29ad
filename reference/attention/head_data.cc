#include "reference/attention/head_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "reference/formats/codec.h"
#include "reference/formats/error_bound.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// |c s| + |z| of rows of codes, and the largest |s| and |z|.
void LoadParts(const AttentionCase& c, const TensorMap& inputs, bool is_key, int64_t batch,
               int64_t kv_head, OperandRows* operand) {
  const auto d = static_cast<size_t>(is_key ? c.k_dim : c.v_dim);
  const auto group = static_cast<size_t>(GridOf(is_key ? c.k : c.v)->group);
  const size_t row_length = d + 2 * (d / group);
  const std::vector<double> rows = LoadCodes(c, inputs, is_key, batch, kv_head);
  operand->magnitude.resize(static_cast<size_t>(c.kv_len) * d);
  operand->scales.reserve(static_cast<size_t>(c.kv_len) * (d / group));
  for (size_t r = 0; r < static_cast<size_t>(c.kv_len); ++r) {
    const double* codes = &rows[r * row_length];
    const double* scales = codes + d;
    const double* biases = scales + d / group;
    for (size_t i = 0; i < d; ++i) {
      operand->magnitude[r * d + i] =
          std::fabs(codes[i] * scales[i / group]) + std::fabs(biases[i / group]);
    }
    for (size_t g = 0; g < d / group; ++g) operand->scales.push_back(std::fabs(scales[g]));
    for (size_t i = d; i < row_length; ++i) {
      operand->scale_largest = std::max(operand->scale_largest, std::fabs(codes[i]));
    }
  }
}

// Of a format without a grid, what is stored: scales of whole vectors, and no biases.
void LoadMagnitudes(const AttentionCase& c, const Profile& profile, const TensorMap& inputs,
                    bool is_key, int64_t batch, int64_t kv_head, OperandRows* operand) {
  const KvFormat& format = is_key ? c.k : c.v;
  const EncodedRows rows = CacheRows(format, inputs, is_key ? "k" : "v");
  operand->magnitude =
      DecodeRows(format, profile, rows, (batch * c.kv_heads + kv_head) * c.kv_len, c.kv_len).hi;
  for (double& value : operand->magnitude) value = std::fabs(value);
}

// Rows y in the basis in which they are stored, and how far R^T y is from the values.
void LoadInBasis(const AttentionCase& c, const Profile& profile, const TensorMap& inputs,
                 bool is_key, int64_t batch, int64_t kv_head, OperandRows* operand) {
  const KvFormat& format = is_key ? c.k : c.v;
  const EncodedRows rows = CacheRows(format, inputs, is_key ? "k" : "v");
  std::vector<double> stored =
      DecodeRowsInBasis(format, profile, rows, (batch * c.kv_heads + kv_head) * c.kv_len, c.kv_len);
  const auto d = static_cast<size_t>(operand->dim);
  const double root = std::sqrt(static_cast<double>(operand->basis.BlockSize()));
  // Originals have the bound of their codec.
  const bool has_error = !operand->codec_error.empty();
  if (!has_error) operand->codec_error.resize(stored.size());
  if (!is_key) operand->magnitude.resize(stored.size());
  for (size_t row = 0; row < stored.size(); row += d) {
    std::vector<double> back(stored.begin() + static_cast<std::ptrdiff_t>(row),
                             stored.begin() + static_cast<std::ptrdiff_t>(row + d));
    operand->basis.RotateBack(back);
    for (const RotatedBlock& block : operand->basis.blocks) {
      double sum = 0, square = 0;
      for (const size_t i : block.channels) {
        sum += std::fabs(stored[row + i]);
        square += stored[row + i] * stored[row + i];
      }
      if (is_key) operand->block_norms.push_back(std::sqrt(square));
      for (const size_t i : block.channels) {
        if (!is_key) operand->magnitude[row + i] = sum / root;
        if (has_error) continue;
        // 2^-46: what y and R^T y are off by in double (stored_basis.h, codec.h).
        operand->codec_error[row + i] =
            std::fabs(operand->hi[row + i] - back[i]) + 0x1p-46 * sum / root;
      }
    }
  }
  for (double& value : stored) value = std::fabs(value);
  operand->in_basis = std::move(stored);
}

// What a kernel should have read of rows of K or V: the stored values, or the originals.
DecodedRows LoadValues(const AttentionCase& c, const Profile& profile, const TensorMap& inputs,
                       bool is_key, int64_t first_row, int64_t rows) {
  const std::string name = is_key ? "k" : "v";
  const KvFormat& format = is_key ? c.k : c.v;
  if (!c.against_original || IsPlain(format)) {
    return DecodeRows(format, profile, CacheRows(format, inputs, name), first_row, rows);
  }
  const int64_t dim = is_key ? c.k_dim : c.v_dim;
  DecodedRows originals;
  originals.hi.resize(static_cast<size_t>(rows * dim));
  DecodeTo(Get(inputs, name + "_original"), first_row * dim, originals.hi);
  return originals;
}

std::vector<double> Transpose(const std::vector<double>& rows, int64_t kv_len, int64_t dim) {
  const int64_t tiles = (kv_len + kKeyTile - 1) / kKeyTile;
  std::vector<double> out(static_cast<size_t>(tiles * kKeyTile * dim), 0.0);
  for (int64_t j = 0; j < kv_len; ++j) {
    double* tile = out.data() + j / kKeyTile * kKeyTile * dim + j % kKeyTile;
    const double* row = rows.data() + j * dim;
    for (int64_t i = 0; i < dim; ++i) tile[i * kKeyTile] = row[i];
  }
  return out;
}

}  // namespace

std::vector<double> LoadCodes(const AttentionCase& c, const TensorMap& inputs, bool is_key,
                              int64_t batch, int64_t kv_head) {
  const KvFormat& format = is_key ? c.k : c.v;
  const EncodedRows rows = CacheRows(format, inputs, is_key ? "k" : "v");
  return CodesAsNumbers(format, rows, (batch * c.kv_heads + kv_head) * c.kv_len, c.kv_len);
}

OperandRows LoadOperand(const AttentionCase& c, const Profile& profile, const TensorMap& inputs,
                        bool is_key, int64_t batch, int64_t kv_head, OperandDetail detail) {
  const KvFormat& format = is_key ? c.k : c.v;
  OperandRows operand;
  operand.dim = is_key ? c.k_dim : c.v_dim;
  const int64_t first_row = (batch * c.kv_heads + kv_head) * c.kv_len;
  if (detail.in_basis) operand.basis = BasisOf(format, operand.dim);
  DecodedRows values = LoadValues(c, profile, inputs, is_key, first_row, c.kv_len);
  operand.hi = std::move(values.hi);
  operand.lo = std::move(values.lo);
  if (c.against_original && !IsPlain(format)) {
    operand.codec_error.reserve(operand.hi.size());
    const auto d = static_cast<size_t>(operand.dim);
    for (size_t at = 0; at < operand.hi.size(); at += d) {
      const std::vector<double> error = OriginalErrorBound(
          FormatOfHead(format, kv_head), profile, c.q, std::span(operand.hi).subspan(at, d));
      operand.codec_error.insert(operand.codec_error.end(), error.begin(), error.end());
    }
  }
  if (operand.basis.Rotates()) {
    LoadInBasis(c, profile, inputs, is_key, batch, kv_head, &operand);
  } else if (detail.parts && GridOf(format)) {
    LoadParts(c, inputs, is_key, batch, kv_head, &operand);
  } else if (detail.parts && Leaves(format, CodecChoice::kDecode)) {
    LoadMagnitudes(c, profile, inputs, is_key, batch, kv_head, &operand);
  }
  return operand;
}

HeadData LoadKeys(const AttentionCase& c, const Profile& profile, const TensorMap& inputs,
                  int64_t batch, int64_t kv_head, int64_t first_key, int64_t keys) {
  const int64_t row = (batch * c.kv_heads + kv_head) * c.kv_len + first_key;
  HeadData head;
  head.kv_len = keys;
  head.k.dim = c.k_dim;
  head.v.dim = c.v_dim;
  head.k.hi = LoadValues(c, profile, inputs, true, row, keys).hi;
  head.v.hi = LoadValues(c, profile, inputs, false, row, keys).hi;
  head.k_tiles = Transpose(head.k.hi, keys, c.k_dim);
  return head;
}

HeadData LoadHead(const AttentionCase& c, const Profile& profile, const TensorMap& inputs,
                  int64_t batch, int64_t kv_head, OperandDetail detail) {
  HeadData head;
  head.kv_len = c.kv_len;
  head.k = LoadOperand(c, profile, inputs, true, batch, kv_head, detail);
  head.v = LoadOperand(c, profile, inputs, false, batch, kv_head, detail);
  head.k_tiles = Transpose(head.k.hi, c.kv_len, c.k_dim);
  if (!head.k.lo.empty()) head.k_lo_tiles = Transpose(head.k.lo, c.kv_len, c.k_dim);
  if (!head.k.magnitude.empty()) {
    head.k_magnitude_tiles = Transpose(head.k.magnitude, c.kv_len, c.k_dim);
  }
  const std::vector<double>& magnitude = !head.k.in_basis.empty()    ? head.k.in_basis
                                         : !head.k.magnitude.empty() ? head.k.magnitude
                                                                     : head.k.hi;
  head.k_abs_sum.resize(static_cast<size_t>(c.kv_len));
  for (int64_t j = 0; j < c.kv_len; ++j) {
    double sum = 0, square = 0;
    for (int64_t i = 0; i < c.k_dim; ++i) {
      const double size = std::fabs(magnitude[static_cast<size_t>(j * c.k_dim + i)]);
      sum += size;
      square += size * size;
    }
    head.k_abs_sum[static_cast<size_t>(j)] = sum;
    head.k_abs_largest = std::max(head.k_abs_largest, sum);
    head.k_norm_largest = std::max(head.k_norm_largest, std::sqrt(square));
  }
  head.v_largest_of.assign(static_cast<size_t>(head.v.dim), 0);
  const auto dv = head.v_largest_of.size();
  for (size_t row = 0; row < head.v.hi.size(); row += dv) {
    const double* v = &head.v.hi[row];
    bool is_finite = true;
    for (size_t c = 0; c < dv; ++c) {
      const double size = std::fabs(v[c]);
      is_finite = is_finite && size < kInfinity;
      if (size < kInfinity) head.v_largest_of[c] = std::max(head.v_largest_of[c], size);
    }
    if (is_finite) continue;
    head.v_not_finite.resize(dv);
    for (size_t c = 0; c < dv; ++c) {
      if (!std::isfinite(v[c])) head.v_not_finite[c] = 1;
    }
  }
  for (const double largest : head.v_largest_of) head.v_largest = std::max(head.v_largest, largest);
  return head;
}

}  // namespace kvcheck
