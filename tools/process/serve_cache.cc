#include "tools/process/serve_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

int64_t NumberIn(const WireValue& value, std::string_view key) {
  return value.Get(key).AsInteger(fmt::format("'{}'", key));
}

std::vector<int64_t> NumbersIn(const WireValue& value, std::string_view key) {
  return value.Get(key).AsIntegers(fmt::format("'{}'", key));
}

std::string TextIn(const WireValue& value, std::string_view key) {
  return std::string(value.Get(key).AsText(fmt::format("'{}'", key)));
}

KvFormat FormatIn(const WireValue& value, std::string_view key) {
  const std::string text = TextIn(value, key);
  return ParseKvFormat(WholeLine(text));
}

// (rows, heads, columns, dim), contiguous.
WireArray VectorsIn(const WireValue& value, std::string_view key) {
  const WireArray array = value.Get(key).AsArray(fmt::format("'{}'", key));
  if (array.rank != 4) throw WireError(fmt::format("'{}' has not 4 axes", key));
  return array;
}

VectorStrides StridesOf(const WireArray& array) {
  const int64_t column = array.extents[3] * static_cast<int64_t>(SizeInBytes(array.dtype));
  const int64_t head = column * array.extents[2];
  return {head * array.extents[1], head, column};
}

}  // namespace

Cache& CacheServer::At(const WireValue& value, std::string_view key) {
  const int64_t number = NumberIn(value, key);
  const auto found = caches_.find(number);
  if (found == caches_.end()) throw WireError(fmt::format("there is no cache {}", number));
  return *found->second;
}

std::unique_ptr<Cache> CacheServer::TakeOut(const WireValue& value,
                                            std::span<const Cache* const> operands) {
  const auto found = caches_.find(NumberIn(value, "out"));
  if (found == caches_.end()) return nullptr;
  const Cache* there = found->second.get();
  if (std::find(operands.begin(), operands.end(), there) != operands.end()) return nullptr;
  std::unique_ptr<Cache> cache = std::move(found->second);
  caches_.erase(found);
  return cache;
}

void CacheServer::PutOut(const WireValue& value, std::unique_ptr<Cache> cache) {
  if (cache != nullptr) caches_[NumberIn(value, "out")] = std::move(cache);
}

std::span<const std::byte> CacheServer::Lend(const WireArray& array, std::vector<std::byte>* copy) {
  copy->assign(array.bytes.begin(), array.bytes.end());
  return *copy;
}

OpResult CacheServer::Start(const WireValue& value, WireWriter&) {
  const WireValue setup = value.Get("setup");
  setup_ = {};
  setup_.kv_heads = NumberIn(setup, "kv_heads");
  setup_.query_heads = NumberIn(setup, "query_heads");
  setup_.k_dim = NumberIn(setup, "k_dim");
  setup_.v_dim = NumberIn(setup, "v_dim");
  setup_.growth_tokens = NumberIn(setup, "growth_tokens");
  for (const int64_t count :
       {setup_.kv_heads, setup_.query_heads, setup_.k_dim, setup_.v_dim, setup_.growth_tokens}) {
    if (count < 1) throw WireError("a setup has heads, channels and tokens: numbers from 1 on");
  }
  if (setup_.query_heads % setup_.kv_heads != 0) {
    throw WireError("'query_heads' of the setup are no multiple of 'kv_heads'");
  }
  const std::optional<DType> x = ParseDType(TextIn(setup, "x"));
  if (!x) throw WireError("'x' of the setup is no type");
  setup_.x = *x;
  caches_.clear();
  store_.Clear();
  return factory_->Start(setup_);
}

OpResult CacheServer::New(const WireValue& value, WireWriter&) {
  const std::string layout = TextIn(value, "layout");
  const std::vector<int64_t> padding = NumbersIn(value, "padding");
  std::unique_ptr<Cache> out = TakeOut(value, {});
  const OpResult result =
      factory_->New(ParseCacheLayout(WholeLine(layout)), FormatIn(value, "k"), FormatIn(value, "v"),
                    NumberIn(value, "rows"), padding, &out);
  PutOut(value, std::move(out));
  return result;
}

OpResult CacheServer::Append(const WireValue& value, WireWriter&) {
  const WireArray k = VectorsIn(value, "k");
  const WireArray v = VectorsIn(value, "v");
  TokenColumns columns;
  columns.dtype = k.dtype;
  columns.rows = k.extents[0];
  columns.kv_heads = k.extents[1];
  columns.columns = k.extents[2];
  columns.v_columns = v.extents[2];
  columns.k_dim = k.extents[3];
  columns.v_dim = v.extents[3];
  if (v.dtype != k.dtype || !std::equal(k.extents, k.extents + 2, v.extents)) {
    throw WireError("'k' and 'v' have different types, rows or heads");
  }
  columns.k = Lend(k, &k_).data();
  columns.v = Lend(v, &v_).data();
  columns.k_strides = StridesOf(k);
  columns.v_strides = StridesOf(v);
  OpResult result = At(value, "cache").Append(columns);
  result.inputs_changed = result.inputs_changed ||
                          !std::equal(k_.begin(), k_.end(), k.bytes.begin()) ||
                          !std::equal(v_.begin(), v_.end(), v.bytes.begin());
  return result;
}

OpResult CacheServer::Prepare(const WireValue& value, WireWriter&) {
  const std::vector<int64_t> lengths = NumbersIn(value, "lengths");
  return At(value, "cache").Prepare(lengths, NumberIn(value, "columns"));
}

OpResult CacheServer::Finalize(const WireValue& value, WireWriter&) {
  return At(value, "cache").Finalize();
}

OpResult CacheServer::Trim(const WireValue& value, WireWriter& writer) {
  int64_t trimmed = 0;
  const OpResult result = At(value, "cache").Trim(NumberIn(value, "count"), &trimmed);
  if (result.ok()) {
    writer.Key("trimmed");
    writer.Integer(trimmed);
  }
  return result;
}

OpResult CacheServer::Filter(const WireValue& value, WireWriter&) {
  const std::vector<int64_t> rows = NumbersIn(value, "rows");
  return At(value, "cache").Filter(rows);
}

OpResult CacheServer::Extend(const WireValue& value, WireWriter&) {
  return At(value, "cache").Extend(At(value, "other"));
}

OpResult CacheServer::Merge(const WireValue& value, WireWriter&) {
  std::vector<const Cache*> operands;
  for (const int64_t number : NumbersIn(value, "caches")) {
    const auto found = caches_.find(number);
    if (found == caches_.end()) throw WireError(fmt::format("there is no cache {}", number));
    operands.push_back(found->second.get());
  }
  std::unique_ptr<Cache> out = TakeOut(value, operands);
  const OpResult result = factory_->Merge(operands, &out);
  PutOut(value, std::move(out));
  return result;
}

OpResult CacheServer::Extract(const WireValue& value, WireWriter&) {
  const Cache* cache = &At(value, "cache");
  std::unique_ptr<Cache> out = TakeOut(value, {&cache, 1});
  const OpResult result = cache->Extract(NumberIn(value, "row"), &out);
  PutOut(value, std::move(out));
  return result;
}

OpResult CacheServer::Copy(const WireValue& value, WireWriter&) {
  const Cache* cache = &At(value, "cache");
  std::unique_ptr<Cache> out = TakeOut(value, {&cache, 1});
  const OpResult result = cache->CopyTo(&out);
  PutOut(value, std::move(out));
  return result;
}

OpResult CacheServer::ToQuantized(const WireValue& value, WireWriter&) {
  return At(value, "cache").ToQuantized(FormatIn(value, "k"), FormatIn(value, "v"));
}

OpResult CacheServer::Save(const WireValue& value, WireWriter&) {
  return At(value, "cache").Save(&store_, TextIn(value, "key"));
}

OpResult CacheServer::Load(const WireValue& value, WireWriter&) {
  std::unique_ptr<Cache> out = TakeOut(value, {});
  const OpResult result = factory_->Load(store_, TextIn(value, "key"), &out);
  PutOut(value, std::move(out));
  return result;
}

OpResult CacheServer::Damage(const WireValue& value, WireWriter& writer) {
  constexpr std::string_view kHow[] = {"truncate", "flip", "foreign", "version"};
  const std::string how = TextIn(value, "how");
  const auto* found = std::find(std::begin(kHow), std::end(kHow), how);
  if (found == std::end(kHow)) throw WireError("'how' is no damage");
  const std::string key = TextIn(value, "key");
  StateRecord record;
  if (store_.Get(key, &record) != StoreStatus::kOk) {
    throw WireError("nothing is saved under the key that is to be damaged");
  }
  CacheOp op;
  op.kind = CacheOpKind::kDamage;
  op.damage = static_cast<kvcheck::Damage>(found - std::begin(kHow));
  op.at = NumberIn(value, "at");
  const OpResult result = store_.Damage(key, op);
  if (result.ok()) {
    writer.Key("as_put");
    writer.Bool(store_.IsAsPut(key));
  }
  return result;
}

OpResult CacheServer::Attend(const WireValue& value, WireWriter& writer) {
  const WireArray q = VectorsIn(value, "q");
  if (q.extents[3] != setup_.k_dim) {
    throw WireError("'q' has another number of channels than keys have");
  }
  AttendRequest request;
  request.dtype = q.dtype;
  request.rows = q.extents[0];
  request.query_heads = q.extents[1];
  request.queries = q.extents[2];
  request.q = Lend(q, &k_).data();
  request.scale = value.Get("scale").AsFloat("'scale'");
  if (const auto window = value.Find("window")) request.window = window->AsInteger("'window'");
  if (const auto sinks = value.Find("sinks")) {
    const WireArray array = sinks->AsArray("'sinks'");
    if (array.dtype != DType::kFloat32 || !array.HasExtents({&request.query_heads, 1})) {
      throw WireError("'sinks' are no f32 of one a query head");
    }
    sinks_.resize(static_cast<size_t>(request.query_heads));
    if (!sinks_.empty()) std::memcpy(sinks_.data(), array.bytes.data(), array.bytes.size());
    request.sinks = sinks_.data();
  }
  const std::array<int64_t, 4> extents = {request.rows, request.query_heads, request.queries,
                                          setup_.v_dim};
  size_t size = SizeInBytes(request.dtype);
  for (const int64_t extent : extents) size *= static_cast<size_t>(extent);
  // NaN: an element that is not written fails.
  out_.assign(size, std::byte{0xff});
  OpResult result = At(value, "cache").Attend(request, out_.data());
  result.inputs_changed =
      result.inputs_changed || !std::equal(k_.begin(), k_.end(), q.bytes.begin());
  if (!result.ok()) return result;
  writer.Key("out");
  const std::span<std::byte> to = writer.Array(request.dtype, extents);
  if (!to.empty()) std::memcpy(to.data(), out_.data(), size);
  return result;
}

OpResult CacheServer::Drop(const WireValue& value, WireWriter&) {
  caches_.erase(NumberIn(value, "cache"));
  return {};
}

bool CacheServer::Answer(std::string_view request, const WireValue& value, WireWriter& writer) {
  using S = CacheServer;
  constexpr std::pair<std::string_view, Handler> kHandlers[] = {{"start", &S::Start},
                                                                {"new", &S::New},
                                                                {"append", &S::Append},
                                                                {"prepare", &S::Prepare},
                                                                {"finalize", &S::Finalize},
                                                                {"trim", &S::Trim},
                                                                {"filter", &S::Filter},
                                                                {"extend", &S::Extend},
                                                                {"merge", &S::Merge},
                                                                {"extract", &S::Extract},
                                                                {"to_quantized", &S::ToQuantized},
                                                                {"copy", &S::Copy},
                                                                {"save", &S::Save},
                                                                {"load", &S::Load},
                                                                {"damage", &S::Damage},
                                                                {"attend", &S::Attend},
                                                                {"drop", &S::Drop},
                                                                {"observe", &S::Observe}};
  const auto* found = std::find_if(std::begin(kHandlers), std::end(kHandlers),
                                   [&](const auto& handler) { return handler.first == request; });
  if (found == std::end(kHandlers)) return false;
  if (const auto dropped = value.Find("drop")) {
    for (const int64_t number : dropped->AsIntegers("'drop'")) caches_.erase(number);
  }
  const OpResult result = (this->*found->second)(value, writer);
  if (!result.ok()) {
    writer.Key(result.status == OpStatus::kRefused ? "refused" : "unsupported");
    writer.Text(result.message);
  }
  if (result.misfit != Misfit::kNone) {
    writer.Key("misfit");
    writer.Text(result.misfit == Misfit::kMask ? "mask" : "k and v");
  }
  const auto text = [&](std::string_view key, const std::string& said) {
    writer.Key(key);
    writer.Text(said);
  };
  if (result.inputs_changed) {
    writer.Key("inputs_changed");
    writer.Bool(true);
  }
  if (result.plan != nullptr) text("plan", Print(*result.plan));
  if (result.profile != nullptr) text("profile", Print(*result.profile));
  const auto observed = value.Find("observe");
  if (!observed) return true;
  const std::vector<int64_t> numbers = observed->AsIntegers("'observe'");
  writer.Key("states");
  writer.StartArray(numbers.size());
  for (const int64_t number : numbers) {
    const auto cache = caches_.find(number);
    if (cache == caches_.end()) {
      writer.Nil();
    } else {
      WriteState(*cache->second, setup_, writer);
    }
  }
  return true;
}

}  // namespace kvcheck
