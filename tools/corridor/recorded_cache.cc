#include "tools/corridor/recorded_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "reference/spec/error.h"
#include "reference/spec/text.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

// The recording tells of another course of the trace than the contract has: what it holds cannot be
// judged, and must not be passed over.
[[noreturn]] void ThrowNotRecorded(int64_t operation) {
  throw Error(ErrorCode::kMissingData,
              fmt::format("the recording has no answer to operation {}", operation + 1));
}

Known Told(int8_t value) { return static_cast<Known>(value); }

class RecordedCache : public Cache {
 public:
  RecordedCache(std::shared_ptr<RecordedPlayer> player, int slot)
      : player_(std::move(player)), slot_(slot) {}

  OpResult Append(const TokenColumns& columns) override {
    const OpResult result = player_->Next(CacheOpKind::kAppend);
    if (result.ok() && player_->answer().changed_inputs) Change(columns.k);
    return result;
  }
  OpResult Prepare(std::span<const int64_t>, int64_t) override {
    return player_->Next(CacheOpKind::kPrepare);
  }
  OpResult Finalize() override { return player_->Next(CacheOpKind::kFinalize); }
  OpResult Trim(int64_t, int64_t* trimmed) override {
    const OpResult result = player_->Next(CacheOpKind::kTrim);
    if (result.ok()) *trimmed = player_->answer().number;
    return result;
  }
  OpResult Filter(std::span<const int64_t>) override { return player_->Next(CacheOpKind::kFilter); }
  OpResult Extend(const Cache&) override { return player_->Next(CacheOpKind::kExtend); }
  OpResult ToQuantized(const KvFormat&, const KvFormat&) override {
    return player_->Next(CacheOpKind::kToQuantized);
  }
  OpResult Extract(int64_t, std::unique_ptr<Cache>* out) const override {
    return Make(CacheOpKind::kExtract, out);
  }
  OpResult CopyTo(std::unique_ptr<Cache>* out) const override {
    return Make(CacheOpKind::kCopy, out);
  }
  OpResult Save(StateStore* store, std::string_view key) const override {
    const OpResult result = player_->Next(CacheOpKind::kSave);
    if (!result.ok()) return result;
    // Something to be damaged: what came of it is in the recording.
    StateRecord record;
    record.attributes[kStateKind] = "kvcheck-recorded-trace";
    record.tensors["bytes"] = Tensor(DType::kUInt8, {{"", 64}});
    store->Put(key, record);
    return result;
  }
  OpResult Attend(const AttendRequest& request, std::byte* out) override {
    const OpResult result = player_->Next(CacheOpKind::kAttend);
    if (!result.ok()) return result;
    const CacheSetup& setup = player_->setup();
    const RecordedState* state = player_->State(slot_);
    if (state == nullptr || state->rows != request.rows || state->queries != request.queries) {
      ThrowNotRecorded(player_->at());
    }
    const std::span<const std::byte> attended = player_->answer().attended;
    if (attended.size() !=
        static_cast<size_t>(request.rows * request.query_heads * request.queries * setup.v_dim) *
            SizeInBytes(request.dtype)) {
      ThrowNotRecorded(player_->at());
    }
    std::memcpy(out, attended.data(), attended.size());
    if (player_->answer().changed_inputs) Change(request.q);
    return result;
  }

  void Observe(StepView* view) override {
    const RecordedState* state = player_->State(slot_);
    if (state == nullptr) return;
    view->rows = state->rows;
    view->columns = state->columns;
    view->queries = state->queries;
    const CacheSetup& setup = player_->setup();
    view->k = {state->k,
               Show(*state, TokenPlanesOf(state->k, setup.k_dim), state->k_planes, setup)};
    view->v = {state->v,
               Show(*state, TokenPlanesOf(state->v, setup.v_dim), state->v_planes, setup)};
    if (state->tells_retained) view->retained = KnownBits(state->retained);
    if (state->tells_visible) view->visible = KnownBits(state->visible);
    if (!state->offsets.empty()) view->offsets = state->offsets.data();
    if (!state->unfed_padding.empty()) view->unfed_padding = state->unfed_padding.data();
    if (state->layout) view->layout = &*state->layout;
    view->size = state->size;
    view->live_bytes = state->live_bytes;
    view->capacity_bytes = state->capacity_bytes;
    view->empty = Told(state->empty);
    view->trimmable = Told(state->trimmable);
    view->pending = Told(state->pending);
  }
  int64_t RetainedTokens(int64_t) const override { return StepView::kUnknown; }

 private:
  // Does to the caller's array what the library did, so that the caller finds it out.
  static void Change(const std::byte* array) { *const_cast<std::byte*>(array) ^= std::byte{1}; }

  OpResult Make(CacheOpKind kind, std::unique_ptr<Cache>* out) const {
    const OpResult result = player_->Next(kind);
    if (result.ok()) *out = std::make_unique<RecordedCache>(player_, player_->op().target);
    return result;
  }

  static std::array<StoredPlane, kMaxPlanes> Show(const RecordedState& state, const Planes& planes,
                                                  const RecordedPlanes& recorded,
                                                  const CacheSetup& setup) {
    std::array<StoredPlane, kMaxPlanes> shown{};
    for (size_t i = 0; state.holds && i < planes.size(); ++i) {
      shown[i] = DensePlane(planes[i], recorded[i].data(), setup.kv_heads, state.columns);
    }
    return shown;
  }

  std::shared_ptr<RecordedPlayer> player_;
  int slot_;
};

}  // namespace

OpResult RecordedPlayer::Next(CacheOpKind kind) {
  const std::vector<RecordedAnswer>& answers = recording_.answers();
  const auto calls = [&](int64_t i) {
    const CacheOpKind k = case_.ops[static_cast<size_t>(i)].kind;
    return answers[static_cast<size_t>(i)].status != RecordedAnswer::Status::kIdle &&
           k != CacheOpKind::kDrop && k != CacheOpKind::kDamage;
  };
  const auto end = static_cast<int64_t>(answers.size());
  int64_t next = at_ + 1;
  while (next < end && !calls(next)) ++next;
  if (next == end || case_.ops[static_cast<size_t>(next)].kind != kind) {
    ThrowNotRecorded(next);
  }
  at_ = next;
  switch (answer().status) {
    case RecordedAnswer::Status::kRefused:
      return OpResult::Refuse(answer().message);
    case RecordedAnswer::Status::kUnsupported:
      return OpResult::Unsupported(answer().message);
    default:
      return {};
  }
}

RecordedCacheFactory::RecordedCacheFactory(const CacheCase& c, const TraceRecording& recording,
                                           CacheCapabilities capabilities)
    : capabilities_(std::move(capabilities)),
      player_(std::make_shared<RecordedPlayer>(c, recording)) {}

OpResult RecordedCacheFactory::Start(const CacheSetup&) {
  player_->Restart();
  return {};
}

OpResult RecordedCacheFactory::New(const CacheLayout&, const KvFormat&, const KvFormat&, int64_t,
                                   std::span<const int64_t>, std::unique_ptr<Cache>* out) {
  const OpResult result = player_->Next(CacheOpKind::kNew);
  if (result.ok()) *out = std::make_unique<RecordedCache>(player_, player_->op().slot);
  return result;
}

OpResult RecordedCacheFactory::Merge(std::span<const Cache* const>, std::unique_ptr<Cache>* out) {
  const OpResult result = player_->Next(CacheOpKind::kMerge);
  if (result.ok()) *out = std::make_unique<RecordedCache>(player_, player_->op().target);
  return result;
}

OpResult RecordedCacheFactory::Load(const StateStore&, std::string_view,
                                    std::unique_ptr<Cache>* out) {
  const OpResult result = player_->Next(CacheOpKind::kLoad);
  if (result.ok()) *out = std::make_unique<RecordedCache>(player_, player_->op().target);
  return result;
}

void ParseRecordedProfile(std::string_view text, CacheCapabilities* capabilities) {
  std::string of_cache;
  std::string other;
  for (const Piece& field : Split(WholeLine(text), ' ')) {
    if (text.empty()) break;
    const std::string_view key = field.text.substr(0, field.text.find('='));
    const bool is_cache =
        key == "size" || key == "bytes" || key == "empty" || key == "trimmable" || key == "trim";
    std::string& part = is_cache ? of_cache : other;
    if (!part.empty()) part += ' ';
    part += field.text;
  }
  capabilities->cache_profile = ParseCacheProfile(of_cache);
  capabilities->profile = ParseProfile(other);
}

}  // namespace kvcheck
