#include "reference/cache/model_record.h"

#include <algorithm>
#include <cstring>

#include "reference/spec/error.h"
#include "reference/spec/text.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

constexpr const char* kKind = "kvcheck-cache-model";
constexpr const char* kVersion = "2";
constexpr int64_t kRowFields = 5;
// Of all rows together: evicted tokens have no bytes that would bear out their number, and each
// takes a handle here.
constexpr int64_t kMostTokens = int64_t{1} << 24;

std::string HeadsText(const CacheSetup& setup) {
  return std::to_string(setup.kv_heads) + " " + std::to_string(setup.k_dim) + " " +
         std::to_string(setup.v_dim);
}

std::string AttributeOf(const StateRecord& record, const std::string& name) {
  const auto found = record.attributes.find(name);
  return found == record.attributes.end() ? "" : found->second;
}

// The tensor, (n, columns) of dtype with the bytes of its shape; nullptr when it is anything else.
const Tensor* Find(const StateRecord& record, const char* name, DType dtype, size_t columns) {
  const auto found = record.tensors.find(name);
  if (found == record.tensors.end()) return nullptr;
  const Tensor& tensor = found->second;
  const auto& axes = tensor.shape.axes;
  const size_t row_bytes = columns * SizeInBytes(dtype);
  if (tensor.dtype != dtype || axes.size() != 2 || axes[0].extent < 0 || row_bytes == 0 ||
      axes[1].extent != static_cast<int64_t>(columns) || tensor.bytes.size() % row_bytes != 0 ||
      static_cast<int64_t>(tensor.bytes.size() / row_bytes) != axes[0].extent) {
    return nullptr;
  }
  return &tensor;
}

// Bytes of K or V of one token.
size_t TokenBytes(const KvFormat& format, int64_t dim, int64_t heads) {
  return TokenPlanesOf(format, dim).RowBytes() * static_cast<size_t>(heads);
}

// The retained tokens are the first `keep` positions and those from `from` on.
bool IsRetained(const ModelRow& row, int64_t position) { return row.retained.Contains(position); }

}  // namespace

StateRecord RecordOf(const CacheSetup& setup, const ModelState& state, const VectorTable& table) {
  StateRecord record;
  record.attributes = {
      {kStateKind, kKind},        {kStateVersion, kVersion}, {"layout", Print(state.layout)},
      {"k", Print(state.k)},      {"v", Print(state.v)},     {"x", std::string(ShortName(setup.x))},
      {"heads", HeadsText(setup)}};
  const auto row_count = static_cast<int64_t>(state.rows.size());
  Tensor rows(DType::kInt64, {{"B", row_count}, {"", kRowFields}});
  int64_t tokens = 0;
  for (int64_t b = 0; b < row_count; ++b) {
    const ModelRow& row = state.rows[static_cast<size_t>(b)];
    int64_t* fields = rows.As<int64_t>() + b * kRowFields;
    fields[0] = row.offset;
    fields[1] = row.unfed_padding;
    fields[2] = row.retained.from;
    fields[3] = row.k_coded;
    fields[4] = row.v_coded;
    for (int64_t p = 0; p < row.offset; ++p) tokens += IsRetained(row, p) ? 1 : 0;
  }
  const size_t k_bytes = TokenBytes(state.k, setup.k_dim, setup.kv_heads);
  const size_t v_bytes = TokenBytes(state.v, setup.v_dim, setup.kv_heads);
  Tensor k(DType::kUInt8, {{"T", tokens}, {"", static_cast<int64_t>(k_bytes)}});
  Tensor v(DType::kUInt8, {{"T", tokens}, {"", static_cast<int64_t>(v_bytes)}});
  size_t at = 0;
  for (const ModelRow& row : state.rows) {
    for (int64_t p = 0; p < row.offset; ++p) {
      if (!IsRetained(row, p)) continue;
      const StoredToken token = row.tokens[static_cast<size_t>(p)];
      // What a faulty rule lost, or left in another format, is saved as far as it is there.
      const auto save = [&](int32_t handle, size_t bytes, Tensor* tensor) {
        if (handle < 0) return;
        const size_t there = table.VectorBytes(handle) * static_cast<size_t>(setup.kv_heads);
        std::memcpy(tensor->bytes.data() + at * bytes, table.Bytes(handle), std::min(bytes, there));
      };
      save(token.k, k_bytes, &k);
      save(token.v, v_bytes, &v);
      ++at;
    }
  }
  record.tensors = {{"rows", std::move(rows)}, {"k", std::move(k)}, {"v", std::move(v)}};
  record.attributes[kStateHash] = StateHash(record);
  return record;
}

std::string_view ReadRecord(const StateRecord& record, const CacheSetup& setup,
                            const std::function<bool(RecordFault)>& takes, VectorTable* table,
                            ModelState* state) {
  const auto refuses = [&](RecordFault fault) { return !takes || !takes(fault); };
  if (AttributeOf(record, kStateKind) != kKind && refuses(RecordFault::kForeign)) {
    return "the record is not one of this cache";
  }
  if (AttributeOf(record, kStateVersion) != kVersion && refuses(RecordFault::kVersion)) {
    return "the record is of an unknown version";
  }
  if (AttributeOf(record, kStateHash) != StateHash(record) && refuses(RecordFault::kHash)) {
    return "the record is damaged: its hash is another";
  }
  if ((AttributeOf(record, "x") != ShortName(setup.x) ||
       AttributeOf(record, "heads") != HeadsText(setup)) &&
      refuses(RecordFault::kOtherSetup)) {
    return "the record is of another type or shape";
  }
  // From here on a record that does not fit together is damaged, whoever took it.
  constexpr std::string_view kDamaged = "the record is damaged: its parts do not fit together";
  ModelState made;
  made.regroup = state->regroup;
  try {
    made.layout = ParseCacheLayout(WholeLine(AttributeOf(record, "layout")));
    made.k = ParseKvFormat(WholeLine(AttributeOf(record, "k")));
    made.v = ParseKvFormat(WholeLine(AttributeOf(record, "v")));
    CheckTokens(made.k, setup.k_dim, "k");
    CheckTokens(made.v, setup.v_dim, "v");
  } catch (const Error&) {
    return kDamaged;
  }
  if (!IsLegal(made.layout) || !KeepsGroups(made.layout, made.k) ||
      !KeepsGroups(made.layout, made.v)) {
    return kDamaged;
  }
  const size_t k_bytes = TokenBytes(made.k, setup.k_dim, setup.kv_heads);
  const size_t v_bytes = TokenBytes(made.v, setup.v_dim, setup.kv_heads);
  const Tensor* rows = Find(record, "rows", DType::kInt64, kRowFields);
  const Tensor* k = Find(record, "k", DType::kUInt8, k_bytes);
  const Tensor* v = Find(record, "v", DType::kUInt8, v_bytes);
  if (rows == nullptr || k == nullptr || v == nullptr) return kDamaged;
  const size_t row_count = rows->bytes.size() / (kRowFields * sizeof(int64_t));
  made.rows.Resize(row_count);
  size_t at = 0;
  int64_t seen = 0;
  for (size_t b = 0; b < row_count; ++b) {
    int64_t fields[kRowFields];
    std::memcpy(fields, rows->bytes.data() + b * sizeof(fields), sizeof(fields));
    ModelRow& row = made.rows[b];
    row.offset = fields[0];
    row.unfed_padding = fields[1];
    row.retained = {made.layout.keep, fields[2], row.offset};
    row.k_coded = fields[3];
    row.v_coded = fields[4];
    // Nothing is believed that the tokens do not bear out: a reader must not run out of memory.
    if (row.offset < 0 || row.offset > kMostTokens || row.unfed_padding < 0 ||
        row.unfed_padding > kMostTokens || fields[2] < 0 || fields[2] > row.offset ||
        row.k_coded < 0 || row.k_coded > row.offset || row.v_coded < 0 ||
        row.v_coded > row.offset) {
      return kDamaged;
    }
    seen += row.offset;
    if (seen > kMostTokens) return kDamaged;
    // Evicted tokens have no bytes any more.
    row.tokens.assign(static_cast<size_t>(row.offset), {-1, -1});
    for (int64_t p = 0; p < row.offset; ++p) {
      if (!IsRetained(row, p)) continue;
      if ((at + 1) * k_bytes > k->bytes.size() || (at + 1) * v_bytes > v->bytes.size()) {
        return kDamaged;
      }
      row.tokens[static_cast<size_t>(p)] = {
          table->AddStored(TokenPart::kKey, TokenFormatOf(made.k), 0,
                           k->bytes.data() + at * k_bytes),
          table->AddStored(TokenPart::kValue, TokenFormatOf(made.v), 0,
                           v->bytes.data() + at * v_bytes)};
      ++at;
    }
  }
  if (at * k_bytes != k->bytes.size() || at * v_bytes != v->bytes.size()) return kDamaged;
  *state = std::move(made);
  return "";
}

}  // namespace kvcheck
