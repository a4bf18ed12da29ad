#include "tools/process/remote_cache.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "reference/spec/error.h"
#include "tools/process/remote_cache_object.h"
#include "tools/process/remote_caches.h"

namespace kvcheck {
namespace {

constexpr auto kNothingToRead = [](const WireValue*) {};

constexpr std::string_view kTooLong =
    "the request does not fit a frame of the process protocol (64 MiB)";

const RemoteCache& Remote(const Cache& cache) { return static_cast<const RemoteCache&>(cache); }

bool Fits(std::span<const int64_t> extents, DType dtype) {
  int64_t bytes = static_cast<int64_t>(SizeInBytes(dtype));
  for (const int64_t extent : extents) {
    if (extent != 0 && bytes > kMaxFrameBytes / extent) return false;
    bytes *= extent;
  }
  return true;
}

// Vectors (rows, heads, columns, dim) with distances, as one array.
void PutVectors(WireWriter& writer, std::string_view key, DType dtype,
                const std::array<int64_t, 4>& extents, const std::byte* from,
                const VectorStrides& strides) {
  writer.Key(key);
  std::byte* to = writer.Array(dtype, extents).data();
  const int64_t vector = extents[3] * static_cast<int64_t>(SizeInBytes(dtype));
  const bool whole_heads = strides.column == vector;
  for (int64_t b = 0; b < extents[0]; ++b) {
    for (int64_t h = 0; h < extents[1]; ++h) {
      const std::byte* head = from + b * strides.row + h * strides.head;
      if (extents[2] * vector == 0) continue;
      if (whole_heads) {
        std::memcpy(to, head, static_cast<size_t>(extents[2] * vector));
        to += extents[2] * vector;
        continue;
      }
      for (int64_t n = 0; n < extents[2]; ++n, to += vector) {
        std::memcpy(to, head + n * strides.column, static_cast<size_t>(vector));
      }
    }
  }
}

bool FlagOf(const WireValue* answer, std::string_view key) {
  if (answer == nullptr) return false;
  const std::optional<WireValue> flag = answer->Find(key);
  return flag && flag->AsBool(key);
}

void PutInteger(WireWriter& writer, std::string_view key, int64_t value) {
  writer.Key(key);
  writer.Integer(value);
}

void PutIntegers(WireWriter& writer, std::string_view key, std::span<const int64_t> values) {
  writer.Key(key);
  writer.Integers(values);
}

void PutFormats(WireWriter& writer, const KvFormat& k, const KvFormat& v) {
  writer.Key("k");
  writer.Text(Print(k));
  writer.Key("v");
  writer.Text(Print(v));
}

}  // namespace

RemoteTarget::RemoteTarget(const std::shared_ptr<RemoteCaches>& caches, std::unique_ptr<Cache>* out)
    : caches_(caches.get()), out_(out) {
  if (*out == nullptr) {
    fresh_ = std::make_unique<RemoteCache>(caches);
    cache_ = fresh_.get();
  } else {
    cache_ = static_cast<RemoteCache*>(out->get());
    cache_->Renew();
  }
}

void RemoteTarget::Made(const KvFormat& k, const KvFormat& v) {
  cache_->Made(k, v);
  if (fresh_ != nullptr) *out_ = std::move(fresh_);
}

void RemoteCache::Made(const KvFormat& k, const KvFormat& v) {
  exists_ = true;
  told_ = -1;
  k_ = k;
  v_ = v;
}

void RemoteCache::TakeState(const WireValue& value, std::shared_ptr<const Message> bytes,
                            int64_t call) const {
  told_ = -1;
  broken_.clear();
  try {
    state_.Read(value, std::move(bytes), caches_->setup(), k_, v_);
  } catch (const WireError& error) {
    broken_ = error.what();
  }
  told_ = call;
}

WireWriter& RemoteCache::Begin(std::string_view request) const {
  KVCHECK_CHECK(generation_ == caches_->generation(), "a cache of an earlier case is called");
  WireWriter& writer = caches_->Begin(request);
  PutInteger(writer, "cache", number_);
  return writer;
}

OpResult RemoteCache::Append(const TokenColumns& columns) {
  const std::array<int64_t, 4> k = {columns.rows, columns.kv_heads, columns.columns, columns.k_dim};
  const std::array<int64_t, 4> v = {columns.rows, columns.kv_heads, columns.ValueColumns(),
                                    columns.v_dim};
  if (!Fits(k, columns.dtype) || !Fits(v, columns.dtype)) return OpResult::Unsupported(kTooLong);
  WireWriter& writer = Begin("append");
  PutVectors(writer, "k", columns.dtype, k, columns.k, columns.k_strides);
  PutVectors(writer, "v", columns.dtype, v, columns.v, columns.v_strides);
  bool changed = false;
  OpResult result = caches_->Finish({this}, nullptr, [&](const WireValue* answer) {
    changed = FlagOf(answer, "inputs_changed");
  });
  result.inputs_changed = changed;
  return result;
}

OpResult RemoteCache::Prepare(std::span<const int64_t> lengths, int64_t columns) {
  WireWriter& writer = Begin("prepare");
  PutIntegers(writer, "lengths", lengths);
  PutInteger(writer, "columns", columns);
  return caches_->Finish({this}, nullptr, kNothingToRead);
}

OpResult RemoteCache::Finalize() {
  Begin("finalize");
  return caches_->Finish({this}, nullptr, kNothingToRead);
}

OpResult RemoteCache::Trim(int64_t count, int64_t* trimmed) {
  PutInteger(Begin("trim"), "count", count);
  return caches_->Finish({this}, nullptr, [&](const WireValue* answer) {
    if (answer != nullptr) *trimmed = answer->Get("trimmed").AsInteger("'trimmed'");
  });
}

OpResult RemoteCache::Filter(std::span<const int64_t> rows) {
  PutIntegers(Begin("filter"), "rows", rows);
  return caches_->Finish({this}, nullptr, kNothingToRead);
}

OpResult RemoteCache::Extend(const Cache& other) {
  const RemoteCache& from = Remote(other);
  PutInteger(Begin("extend"), "other", from.number_);
  if (&from == this) return caches_->Finish({this}, nullptr, kNothingToRead);
  return caches_->Finish({this, &from}, nullptr, kNothingToRead);
}

OpResult RemoteCache::ToQuantized(const KvFormat& k, const KvFormat& v) {
  PutFormats(Begin("to_quantized"), k, v);
  return caches_->Finish({this}, nullptr, [&](const WireValue*) {
    k_ = k;
    v_ = v;
  });
}

OpResult RemoteCache::Extract(int64_t row, std::unique_ptr<Cache>* out) const {
  RemoteTarget target(caches_, out);
  WireWriter& writer = Begin("extract");
  PutInteger(writer, "row", row);
  PutInteger(writer, "out", target.get()->number());
  return caches_->Finish({this}, target.get(), [&](const WireValue*) { target.Made(k_, v_); });
}

OpResult RemoteCache::CopyTo(std::unique_ptr<Cache>* out) const {
  RemoteTarget target(caches_, out);
  PutInteger(Begin("copy"), "out", target.get()->number());
  return caches_->Finish({this}, target.get(), [&](const WireValue*) { target.Made(k_, v_); });
}

OpResult RemoteCache::Save(StateStore*, std::string_view key) const {
  WireWriter& writer = Begin("save");
  writer.Key("key");
  writer.Text(key);
  return caches_->Finish({this}, nullptr, [&](const WireValue*) {
    caches_->saved.insert_or_assign(std::string(key), std::pair(k_, v_));
    caches_->Saved(key);
  });
}

OpResult RemoteCache::Attend(const AttendRequest& request, std::byte* out) {
  const CacheSetup& setup = caches_->setup();
  const std::array<int64_t, 4> q = {request.rows, request.query_heads, request.queries,
                                    setup.k_dim};
  if (!Fits(q, request.dtype)) return OpResult::Unsupported(kTooLong);
  const int64_t vector = setup.k_dim * static_cast<int64_t>(SizeInBytes(request.dtype));
  WireWriter& writer = Begin("attend");
  PutVectors(writer, "q", request.dtype, q, request.q,
             {vector * request.queries * request.query_heads, vector * request.queries, vector});
  writer.Key("scale");
  writer.Float(request.scale);
  writer.Key("window");
  request.window ? writer.Integer(*request.window) : writer.Nil();
  writer.Key("sinks");
  if (request.sinks == nullptr) {
    writer.Nil();
  } else {
    const std::span<std::byte> to = writer.Array(DType::kFloat32, {&request.query_heads, 1});
    std::memcpy(to.data(), request.sinks, to.size());
  }
  OpResult how;
  OpResult result = caches_->Finish({this}, nullptr, [&](const WireValue* answer) {
    if (answer == nullptr) return;
    const WireArray array = answer->Get("out").AsArray("'out'");
    const std::array<int64_t, 4> wanted = {request.rows, request.query_heads, request.queries,
                                           setup.v_dim};
    if (array.dtype != request.dtype || !array.HasExtents(wanted)) {
      throw WireError("'out' has another type or shape than (rows, query heads, queries, v_dim)");
    }
    if (!array.bytes.empty()) std::memcpy(out, array.bytes.data(), array.bytes.size());
    how.inputs_changed = FlagOf(answer, "inputs_changed");
    how.plan = caches_->PlanOf(*answer);
    how.profile = caches_->ProfileOf(*answer);
  });
  result.inputs_changed = how.inputs_changed;
  result.plan = how.plan;
  result.profile = how.profile;
  return result;
}

void RemoteCache::AskState() const {
  const RemoteCache* self = this;
  caches_->Observe({&self, 1});
}

void RemoteCache::Observe(StepView* view) {
  if (told_ < 0 || told_ != caches_->process().calls()) AskState();
  if (caches_->rehearses()) {
    *view = {};
    return;
  }
  if (!broken_.empty()) caches_->process().Break(broken_);
  state_.Show(view);
}

int64_t RemoteCache::RetainedTokens(int64_t row) const {
  if (told_ < 0 || told_ < named_) AskState();
  if (caches_->rehearses()) return StepView::kUnknown;
  if (!broken_.empty()) caches_->process().Break(broken_);
  return state_.RetainedTokens(row);
}

RemoteCacheFactory::RemoteCacheFactory(std::shared_ptr<RemoteProcess> process)
    : caches_(std::make_shared<RemoteCaches>(std::move(process))) {}

RemoteCacheFactory::~RemoteCacheFactory() = default;

RemoteProcess& RemoteCacheFactory::process() { return caches_->process(); }

TraceStore* RemoteCacheFactory::OwnStore() { return caches_->store(); }

void RemoteCacheFactory::ObserveAfter(ObserveHint hint) { caches_->hint = hint; }

void RemoteCacheFactory::ObserveNext(std::span<Cache* const> caches) {
  std::vector<const RemoteCache*> asked;
  bool told = true;
  for (const Cache* cache : caches) {
    asked.push_back(&Remote(*cache));
    told = told && asked.back()->IsTold(caches_->process().calls());
  }
  if (!told) caches_->Observe(asked);
}

bool RemoteCacheFactory::BeginRehearsal() {
  caches_->BeginRehearsal();
  return true;
}

bool RemoteCacheFactory::Expect(bool legal) { return caches_->Expect(legal); }

void RemoteCacheFactory::EndRehearsal() { caches_->EndRehearsal(); }

bool RemoteCacheFactory::ForgetRehearsed() { return caches_->process().ForgetAhead(); }

CacheCapabilities RemoteCacheFactory::GetCapabilities() const {
  const Greeting& greeting = caches_->process().greeting();
  CacheCapabilities capabilities;
  capabilities.name = greeting.name;
  capabilities.version = greeting.version;
  capabilities.cache_profile = greeting.cache_profile;
  capabilities.profile = greeting.profile;
  capabilities.plan = greeting.plan;
  capabilities.spaces = greeting.cache_spaces;
  capabilities.states_plan = true;
  capabilities.foreign = true;
  capabilities.warnings = greeting.warnings;
  return capabilities;
}

OpResult RemoteCacheFactory::Start(const CacheSetup& setup) { return caches_->Start(setup); }

OpResult RemoteCacheFactory::New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v,
                                 int64_t rows, std::span<const int64_t> left_padding,
                                 std::unique_ptr<Cache>* out) {
  RemoteTarget target(caches_, out);
  WireWriter& writer = caches_->Begin("new");
  PutInteger(writer, "out", target.get()->number());
  writer.Key("layout");
  writer.Text(Print(layout));
  PutFormats(writer, k, v);
  PutInteger(writer, "rows", rows);
  PutIntegers(writer, "padding", left_padding);
  return caches_->Finish({}, target.get(), [&](const WireValue*) { target.Made(k, v); });
}

OpResult RemoteCacheFactory::Merge(std::span<const Cache* const> operands,
                                   std::unique_ptr<Cache>* out) {
  std::vector<int64_t> numbers;
  std::vector<const RemoteCache*> named;
  for (const Cache* operand : operands) {
    const RemoteCache& cache = Remote(*operand);
    numbers.push_back(cache.number());
    if (std::find(named.begin(), named.end(), &cache) == named.end()) named.push_back(&cache);
  }
  RemoteTarget target(caches_, out);
  WireWriter& writer = caches_->Begin("merge");
  PutIntegers(writer, "caches", numbers);
  PutInteger(writer, "out", target.get()->number());
  return caches_->Finish(std::span<const RemoteCache* const>(named), target.get(),
                         [&](const WireValue*) { target.Made(named[0]->k(), named[0]->v()); });
}

OpResult RemoteCacheFactory::Load(const StateStore&, std::string_view key,
                                  std::unique_ptr<Cache>* out) {
  RemoteTarget target(caches_, out);
  WireWriter& writer = caches_->Begin("load");
  writer.Key("key");
  writer.Text(key);
  PutInteger(writer, "out", target.get()->number());
  return caches_->Finish({}, target.get(), [&](const WireValue*) {
    const auto found = caches_->saved.find(key);
    // Loaded though nothing was saved: the judge will say so.
    const KvFormat plain = PlainFormat{caches_->setup().x};
    target.Made(found == caches_->saved.end() ? plain : found->second.first,
                found == caches_->saved.end() ? plain : found->second.second);
  });
}

}  // namespace kvcheck
