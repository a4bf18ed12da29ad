#include "reference/trace/trace_inputs.h"

#include <algorithm>
#include <cmath>

#include "reference/data/token_rows.h"
#include "reference/spec/error.h"

namespace kvcheck {

TokenColumns FillColumns(const CacheSetup& setup, const CacheOp& op, int64_t operation,
                         const ModelState& state, std::vector<std::byte>* k,
                         std::vector<std::byte>* v) {
  TokenColumns columns;
  columns.dtype = setup.x;
  columns.rows = static_cast<int64_t>(state.rows.size());
  columns.kv_heads = setup.kv_heads;
  columns.columns = op.count;
  columns.k_dim = setup.k_dim;
  columns.v_dim = setup.v_dim;
  switch (op.wrong) {
    case WrongColumns::kNothing:
      break;
    case WrongColumns::kRows:
      ++columns.rows;
      break;
    case WrongColumns::kHeads:
      ++columns.kv_heads;
      break;
    case WrongColumns::kKDim:
      ++columns.k_dim;
      break;
    case WrongColumns::kVDim:
      ++columns.v_dim;
      break;
    case WrongColumns::kType:
      columns.dtype = setup.x == DType::kFloat32 ? DType::kFloat16 : DType::kFloat32;
      break;
    case WrongColumns::kFewerRows:
      columns.rows = columns.rows > 1 ? 1 : columns.rows + 1;
      break;
    case WrongColumns::kFewerHeads:
      columns.kv_heads = columns.kv_heads > 1 ? 1 : columns.kv_heads + 1;
      break;
    case WrongColumns::kFewerColumns:
      columns.v_columns = op.count > 1 ? op.count - 1 : op.count + 1;
      break;
  }
  if (columns.rows * columns.kv_heads * columns.columns > kMaxTraceVectors) {
    throw Error(ErrorCode::kUnsupported, "the trace appends more than 2^22 vectors at once");
  }
  const auto element = static_cast<int64_t>(SizeInBytes(columns.dtype));
  const auto measure = [&](int64_t count, int64_t dim, std::vector<std::byte>* bytes) {
    const int64_t vector = dim * element;
    const VectorStrides strides = {columns.kv_heads * count * vector, count * vector, vector};
    bytes->resize(static_cast<size_t>(columns.rows * strides.row));
    return strides;
  };
  columns.k_strides = measure(columns.columns, columns.k_dim, k);
  columns.v_strides = measure(columns.ValueColumns(), columns.v_dim, v);
  columns.k = k->data();
  columns.v = v->data();
  if (op.wrong != WrongColumns::kNothing) {
    std::fill(k->begin(), k->end(), std::byte{0});
    std::fill(v->begin(), v->end(), std::byte{0});
    return columns;
  }
  const uint64_t seed = setup.data.seed;
  for (int64_t b = 0; b < columns.rows; ++b) {
    const ColumnSplit split = SplitColumns(state, static_cast<size_t>(b), op.count);
    for (int64_t h = 0; h < columns.kv_heads; ++h) {
      std::byte* to_k = k->data() + b * columns.k_strides.row + h * columns.k_strides.head;
      std::byte* to_v = v->data() + b * columns.v_strides.row + h * columns.v_strides.head;
      for (int64_t n = 0; n < op.count; ++n) {
        if (n < split.padding || n >= split.padding + split.tokens) {
          FillPaddingVector(setup.x, setup.k_dim, to_k);
          FillPaddingVector(setup.x, setup.v_dim, to_v);
        } else {
          const uint64_t token = TokenId(operation, b, n);
          FillTokenVector(seed, token, h, TokenPart::kKey, setup.x, setup.k_dim, to_k);
          FillTokenVector(seed, token, h, TokenPart::kValue, setup.x, setup.v_dim, to_v);
        }
        to_k += columns.k_strides.column;
        to_v += columns.v_strides.column;
      }
    }
  }
  return columns;
}

AttendRequest FillQueries(const CacheSetup& setup, const CacheOp& op, int64_t operation,
                          const ModelState& state, std::vector<std::byte>* q,
                          std::vector<float>* sinks) {
  AttendRequest request;
  request.dtype = setup.x;
  request.rows = static_cast<int64_t>(state.rows.size());
  request.query_heads = setup.query_heads;
  request.queries = std::max<int64_t>(state.queries, 1);
  request.scale = op.scale ? *op.scale : 1 / std::sqrt(static_cast<double>(setup.k_dim));
  request.window = op.window;
  const int64_t vectors = request.rows * request.query_heads * request.queries;
  if (vectors > kMaxTraceVectors) {
    throw Error(ErrorCode::kUnsupported, "the trace attends with more than 2^22 vectors at once");
  }
  const size_t vector = static_cast<size_t>(setup.k_dim) * SizeInBytes(setup.x);
  q->resize(static_cast<size_t>(vectors) * vector);
  std::byte* to = q->data();
  for (int64_t b = 0; b < request.rows; ++b) {
    for (int64_t h = 0; h < request.query_heads; ++h) {
      for (int64_t l = 0; l < request.queries; ++l, to += vector) {
        FillTokenVector(setup.data.seed, TokenId(operation, b, l), h, TokenPart::kQuery, setup.x,
                        setup.k_dim, to);
      }
    }
  }
  request.q = q->data();
  if (op.sinks) {
    sinks->resize(static_cast<size_t>(setup.query_heads));
    for (size_t h = 0; h < sinks->size(); ++h) {
      (*sinks)[h] = TokenSink(setup.data.seed, static_cast<int64_t>(h));
    }
    request.sinks = sinks->data();
  }
  return request;
}

void DamageRecord(const CacheOp& op, StateRecord* record) {
  if (op.damage == Damage::kForeign || op.damage == Damage::kVersion) {
    const bool foreign = op.damage == Damage::kForeign;
    record->attributes[foreign ? kStateKind : kStateVersion] = foreign ? "somebody-else" : "999";
    record->attributes[kStateHash] = StateHash(*record);
    return;
  }
  size_t total = 0;
  for (const auto& [name, tensor] : record->tensors) total += tensor.bytes.size();
  if (total == 0) {
    record->attributes[kStateHash] += "x";
    return;
  }
  size_t at = static_cast<size_t>(op.at) % total;
  for (auto& [name, tensor] : record->tensors) {
    if (at >= tensor.bytes.size()) {
      at -= tensor.bytes.size();
      continue;
    }
    if (op.damage == Damage::kTruncate) {
      tensor.bytes.pop_back();
    } else {
      tensor.bytes[at] ^= static_cast<std::byte>(1u << (op.at % 8));
    }
    return;
  }
}

}  // namespace kvcheck
