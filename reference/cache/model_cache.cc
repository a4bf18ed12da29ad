#include "reference/cache/model_cache.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "reference/cache/model_attend.h"
#include "reference/cache/model_record.h"
#include "reference/cache/model_view.h"
#include "reference/cache/vector_table.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {

struct ModelSpace {
  CacheRules rules;
  CacheSetup setup;
  VectorTable table;
  // Of saves that share instead of copying: the live states, by key.
  std::map<std::string, std::shared_ptr<ModelState>, std::less<>> shared;
};

namespace {

class ModelCache : public Cache {
 public:
  explicit ModelCache(std::shared_ptr<ModelSpace> space)
      : space_(std::move(space)), state_(std::make_shared<ModelState>()) {}

  ModelState& state() { return *state_; }
  const ModelState& state() const { return *state_; }
  void Share(std::shared_ptr<ModelState> state) { state_ = std::move(state); }
  const std::shared_ptr<ModelState>& shared() const { return state_; }

  OpResult Append(const TokenColumns& columns) override {
    CacheCall call{CacheOpKind::kAppend, state_.get(), nullptr, columns.columns, {}};
    if (const auto why = Judge(call, RefuseAppend(setup(), *state_, columns)); !why.empty()) {
      return Refused(call, why);
    }
    const ModelState before = Before(rules().append != nullptr);
    for (size_t b = 0; b < state_->rows.size(); ++b) AppendRow(b, columns);
    // Without rows nothing but the step is left of an append.
    state_->queries = columns.columns;
    if (rules().append) rules().append(before, state_.get());
    return {};
  }

  OpResult Prepare(std::span<const int64_t> lengths, int64_t) override {
    CacheCall call{CacheOpKind::kPrepare, state_.get(), nullptr, 0, lengths};
    if (const auto why = Judge(call, RefusePrepare(*state_, lengths)); !why.empty()) {
      return Refused(call, why);
    }
    kvcheck::Prepare(lengths, state_.get());
    return {};
  }

  OpResult Finalize() override {
    CacheCall call{CacheOpKind::kFinalize, state_.get(), nullptr, 0, {}};
    if (const auto why = Judge(call, RefuseFinalize(*state_)); !why.empty()) {
      return Refused(call, why);
    }
    const ModelState before = Before(rules().finalize != nullptr);
    kvcheck::Finalize(state_.get());
    if (rules().finalize) rules().finalize(before, state_.get());
    return {};
  }

  OpResult Trim(int64_t count, int64_t* trimmed) override {
    CacheCall call{CacheOpKind::kTrim, state_.get(), nullptr, count, {}};
    if (const auto why = Judge(call, RefuseTrim(*state_, count)); !why.empty()) {
      return Refused(call, why);
    }
    int64_t reach = std::max<int64_t>(0, TrimReach(*state_, count, {}));
    if (rules().trim_reach) rules().trim_reach(*state_, count, &reach);
    const ModelState before = Before(rules().trim != nullptr);
    kvcheck::Trim(reach, state_.get());
    *trimmed = reach;
    if (rules().trim) rules().trim(before, state_.get());
    return {};
  }

  OpResult Filter(std::span<const int64_t> rows) override {
    CacheCall call{CacheOpKind::kFilter, state_.get(), nullptr, 0, rows};
    if (const auto why = Judge(call, RefuseFilter(*state_, rows)); !why.empty()) {
      return Refused(call, why);
    }
    const ModelState before = Before(rules().filter != nullptr);
    std::vector<int64_t> there;  // a rule may have let others through
    for (int64_t row : rows) {
      if (row >= 0 && row < static_cast<int64_t>(state_->rows.size())) there.push_back(row);
    }
    kvcheck::Filter(there, state_.get(), &scratch_);
    if (rules().filter) rules().filter(before, there, state_.get());
    return {};
  }

  OpResult Extend(const Cache& other_cache) override {
    const auto& other = static_cast<const ModelCache&>(other_cache);
    CacheCall call{CacheOpKind::kExtend, state_.get(), other.state_.get(), 0, {}};
    if (const auto why = Judge(call, RefuseExtend(*state_, other.state())); !why.empty()) {
      return Refused(call, why);
    }
    const ModelState before = Before(rules().extend != nullptr);
    const ModelState its = rules().extend ? other.state() : ModelState();
    kvcheck::Extend(other.state(), state_.get());
    if (rules().extend) rules().extend(before, its, state_.get());
    if (Shares(CacheOpKind::kExtend) && state_ != other.state_) {
      *other.state_ = *state_;
    }
    return {};
  }

  OpResult ToQuantized(const KvFormat& k, const KvFormat& v) override {
    CacheCall call{CacheOpKind::kToQuantized, state_.get(), nullptr, 0, {}};
    if (const auto why = Judge(call, RefuseToQuantized(setup(), *state_, k, v)); !why.empty()) {
      return Refused(call, why);
    }
    const ModelState before = Before(rules().to_quantized != nullptr);
    for (ModelRow& row : state_->rows) {
      for (int64_t p = 0; p < row.offset; ++p) {
        if (!row.retained.Contains(p)) continue;
        StoredToken& token = row.tokens[static_cast<size_t>(p)];
        if (token.k < 0 || token.v < 0) continue;
        token = {table().Convert(token.k, TokenFormatOf(k)),
                 table().Convert(token.v, TokenFormatOf(v))};
      }
      const auto close = [&](TokenPart part, const KvFormat& format) {
        CloseGroups(part, format, state_->regroup, 0, rules().groups, &row, &table());
      };
      if (!(state_->k == k)) close(TokenPart::kKey, k);
      if (!(state_->v == v)) close(TokenPart::kValue, v);
    }
    state_->k = k;
    state_->v = v;
    EndStep(state_.get());
    if (rules().to_quantized) rules().to_quantized(before, state_.get());
    return {};
  }

  OpResult Extract(int64_t row, std::unique_ptr<Cache>* out) const override {
    CacheCall call{CacheOpKind::kExtract, state_.get(), nullptr, row, {}};
    if (const auto why = Judge(call, RefuseExtract(*state_, row)); !why.empty()) {
      return Refused(call, why);
    }
    ModelCache* made = Fresh(out);
    kvcheck::Extract(*state_, row, &made->state());
    if (rules().extract) rules().extract(*state_, row, &made->state());
    return {};
  }

  OpResult CopyTo(std::unique_ptr<Cache>* out) const override {
    CacheCall call{CacheOpKind::kCopy, state_.get(), nullptr, 0, {}};
    if (const auto why = Judge(call, RefuseWhilePending(*state_)); !why.empty()) {
      return Refused(call, why);
    }
    ModelCache* made = Fresh(out);
    if (Shares(CacheOpKind::kCopy)) {
      made->Share(state_);
      return {};
    }
    CopyState(*state_, &made->state());
    if (rules().copy) rules().copy(*state_, &made->state());
    return {};
  }

  OpResult Save(StateStore* store, std::string_view key) const override {
    CacheCall call{CacheOpKind::kSave, state_.get(), nullptr, 0, {}};
    if (const auto why = Judge(call, RefuseWhilePending(*state_)); !why.empty()) {
      return Refused(call, why);
    }
    store->Put(key, RecordOf(setup(), *state_, space_->table));
    if (Shares(CacheOpKind::kSave)) space_->shared[std::string(key)] = state_;
    return {};
  }

  OpResult Attend(const AttendRequest& request, std::byte* out) override;
  void Observe(StepView* view) override {
    shown_.Show(*state_, setup(), space_->table, rules(), view);
  }

  int64_t RetainedTokens(int64_t row) const override {
    return state_->rows[static_cast<size_t>(row)].retained.Count();
  }

  // A cache in *out whose state may be overwritten.
  ModelCache* Fresh(std::unique_ptr<Cache>* out) const { return Fresh(space_, out); }
  static ModelCache* Fresh(const std::shared_ptr<ModelSpace>& space, std::unique_ptr<Cache>* out) {
    auto* made = static_cast<ModelCache*>(out->get());
    if (made == nullptr) {
      *out = std::make_unique<ModelCache>(space);
      return static_cast<ModelCache*>(out->get());
    }
    if (made->state_.use_count() > 1) made->state_ = std::make_shared<ModelState>();
    return made;
  }
  static std::string_view Judge(const CacheRules& rules, const CacheCall& call,
                                std::string_view why) {
    if (rules.legal) rules.legal(call, &why);
    return why;
  }

 private:
  const CacheRules& rules() const { return space_->rules; }
  const CacheSetup& setup() const { return space_->setup; }
  VectorTable& table() { return space_->table; }
  std::string_view Judge(const CacheCall& call, std::string_view why) const {
    return Judge(rules(), call, why);
  }
  OpResult Refused(const CacheCall& call, std::string_view why) const {
    if (rules().refused) rules().refused(call, state_.get());
    return OpResult::Refuse(why);
  }
  bool Shares(CacheOpKind op) const {
    if (!rules().shares || !rules().shares(op)) return false;
    rules().hits->fetch_add(1);
    return true;
  }
  ModelState Before(bool wanted) const { return wanted ? *state_ : ModelState(); }

  void AppendRow(size_t b, const TokenColumns& columns);
  // The tokens that a query of the last append attends to; false for a padding column.
  bool SeenBy(size_t b, int64_t query, const std::optional<int64_t>& window,
              std::vector<StoredToken>* seen) const;

  std::shared_ptr<ModelSpace> space_;
  std::shared_ptr<ModelState> state_;
  ModelRows scratch_;
  ModelView shown_;
};

void ModelCache::AppendRow(size_t b, const TokenColumns& columns) {
  ModelState& state = *state_;
  ColumnSplit split = SplitColumns(state, b, columns.columns);
  if (rules().split) rules().split(state, b, columns.columns, &split);
  StartAppend(&state, b, columns.columns, split, /*evicts=*/true);
  ModelRow& row = state.rows[b];
  if (rules().retained) rules().retained(state, b, columns.columns, &row.retained);
  for (int64_t i = split.padding; i < split.padding + split.tokens; ++i) {
    const auto at = [&](const std::byte* base, const VectorStrides& strides) {
      return base + static_cast<int64_t>(b) * strides.row + i * strides.column;
    };
    const StoredToken token = {
        table().Add(TokenPart::kKey, TokenFormatOf(state.k), 0, at(columns.k, columns.k_strides),
                    columns.k_strides.head),
        table().Add(TokenPart::kValue, TokenFormatOf(state.v), 0, at(columns.v, columns.v_strides),
                    columns.v_strides.head)};
    if (rules().encode) {
      for (const auto& [handle, part] :
           {std::pair{token.k, TokenPart::kKey}, std::pair{token.v, TokenPart::kValue}}) {
        const size_t bytes = table().VectorBytes(handle) * static_cast<size_t>(setup().kv_heads);
        rules().encode(part, table().Format(handle), columns.columns,
                       {table().Bytes(handle), bytes});
      }
    }
    row.tokens.push_back(token);
  }
  CloseAppended(state, rules().profile.reads_before, rules().groups, &row, &table());
  Appended(&state, b, split);
}

OpResult ModelCache::Attend(const AttendRequest& request, std::byte* out) {
  CacheCall call{CacheOpKind::kAttend, state_.get(), nullptr, request.queries, {}};
  if (const auto why = Judge(call, RefuseAttend(setup(), *state_, request)); !why.empty()) {
    return Refused(call, why);
  }
  const auto dv = static_cast<size_t>(setup().v_dim);
  const size_t element = SizeInBytes(request.dtype);
  std::vector<double> q(static_cast<size_t>(setup().k_dim));
  std::vector<double> o(dv);
  std::vector<StoredToken> seen;
  for (int64_t b = 0; b < request.rows; ++b) {
    const auto row = static_cast<size_t>(b);
    for (int64_t l = 0; l < request.queries; ++l) {
      const bool is_token = SeenBy(row, l, request.window, &seen);
      for (int64_t h = 0; h < request.query_heads; ++h) {
        const auto at = static_cast<size_t>((b * request.query_heads + h) * request.queries + l);
        std::fill(o.begin(), o.end(), 0.0);
        if (is_token) {
          for (size_t i = 0; i < q.size(); ++i) {
            uint64_t code = 0;
            std::memcpy(&code, request.q + (at * q.size() + i) * element, element);
            q[i] = Decode(request.dtype, code);
          }
          const auto sink =
              request.sinks == nullptr ? std::nullopt : std::optional<float>(request.sinks[h]);
          AttendPlainly(q, seen, h / (setup().query_heads / setup().kv_heads), request.scale, sink,
                        &table(), o);
          if (rules().attend) rules().attend(*state_, row, l, o);
        }
        EncodeFrom(o, request.dtype, out + at * dv * element);
      }
    }
  }
  return {};
}

bool ModelCache::SeenBy(size_t b, int64_t query, const std::optional<int64_t>& window,
                        std::vector<StoredToken>* seen) const {
  const ModelRow& row = state_->rows[b];
  seen->clear();
  const int64_t index = query - row.first_query;
  if (index < 0 || index >= row.query_tokens) return false;
  const int64_t position = row.retained.end - row.query_tokens + index;
  TokenRange range = VisibleUnder(rules(), *state_, b, position);
  if (window) {
    range.from = std::max(range.from, position + 1 - *window);
    if (rules().visible_in_window) {
      rules().visible_in_window(*state_, b, position, *window, &range);
    }
  }
  for (int64_t p = 0; p < range.end; ++p) {
    if (!range.Contains(p) || !row.retained.Contains(p)) continue;
    const StoredToken token = row.Seen()[static_cast<size_t>(p)];
    if (token.k >= 0 && token.v >= 0) seen->push_back(token);
  }
  return true;
}

}  // namespace

ModelFactory::ModelFactory(CacheRules rules, std::string name)
    : space_(std::make_shared<ModelSpace>()), name_(std::move(name)) {
  space_->rules = std::move(rules);
}

ModelFactory::~ModelFactory() = default;

CacheCapabilities ModelFactory::GetCapabilities() const {
  return {name_, "1", space_->rules.profile, space_->rules.conventions,
          ParsePlan(kModelAttendPlan)};
}

OpResult ModelFactory::Start(const CacheSetup& setup) {
  space_->setup = setup;
  space_->table.Start(setup, space_->rules.conventions, /*looks_for_collisions=*/false);
  space_->shared.clear();
  return {};
}

OpResult ModelFactory::New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v,
                           int64_t rows, std::span<const int64_t> left_padding,
                           std::unique_ptr<Cache>* out) {
  const CacheCall call{CacheOpKind::kNew, nullptr, nullptr, rows, left_padding};
  const auto why = ModelCache::Judge(space_->rules, call,
                                     RefuseNew(space_->setup, layout, k, v, rows, left_padding));
  if (!why.empty()) return OpResult::Refuse(why);
  ModelState* made = &ModelCache::Fresh(space_, out)->state();
  kvcheck::New(layout, k, v, rows, left_padding, made);
  made->regroup = space_->rules.profile.regroup;
  return {};
}

OpResult ModelFactory::Merge(std::span<const Cache* const> caches, std::unique_ptr<Cache>* out) {
  std::vector<const ModelState*> states;
  for (const Cache* cache : caches) {
    states.push_back(&static_cast<const ModelCache*>(cache)->state());
  }
  CacheCall call{CacheOpKind::kMerge, nullptr, nullptr, static_cast<int64_t>(states.size()), {}};
  for (const ModelState* state : states) {
    const auto tokens = [](const ModelState& s) {
      return s.rows.size() == 0 ? 0 : s.rows[0].offset;
    };
    if (call.other == nullptr || tokens(*state) < tokens(*call.other)) call.other = state;
  }
  const auto why = ModelCache::Judge(space_->rules, call, RefuseMerge(states));
  if (!why.empty()) return OpResult::Refuse(why);
  ModelState* made = &ModelCache::Fresh(space_, out)->state();
  kvcheck::Merge(states, made);
  if (space_->rules.merge) space_->rules.merge(states, made);
  return {};
}

OpResult ModelFactory::Load(const StateStore& store, std::string_view key,
                            std::unique_ptr<Cache>* out) {
  StateRecord record;
  switch (store.Get(key, &record)) {
    case StoreStatus::kOk:
      break;
    case StoreStatus::kMissing:
      return OpResult::Refuse("nothing is saved under this key");
    case StoreStatus::kDamaged:
      return OpResult::Refuse("the store says that it is damaged");
  }
  ModelState made;
  made.regroup = space_->rules.profile.regroup;
  std::string_view why =
      ReadRecord(record, space_->setup, space_->rules.takes_record, &space_->table, &made);
  if (const auto shared = space_->shared.find(key); why.empty() && shared != space_->shared.end()) {
    ModelCache::Fresh(space_, out)->Share(shared->second);
    return {};
  }
  const CacheCall call{CacheOpKind::kLoad, why.empty() ? &made : nullptr, nullptr, 0, {}};
  why = ModelCache::Judge(space_->rules, call, why);
  if (!why.empty()) return OpResult::Refuse(why);
  const ModelState before = space_->rules.load ? made : ModelState();
  if (space_->rules.load) space_->rules.load(before, &made);
  ModelCache::Fresh(space_, out)->state() = std::move(made);
  return {};
}

int64_t ModelFactory::Hits() const { return space_->rules.hits->load(); }

}  // namespace kvcheck
