// The tool with caches that misbehave beyond what a mutant of the model may: they crash, hang and
// throw in rare states, or have not everything. Otherwise they are the model. Time is what a test
// says (child_time.h), where it says so.

#include <signal.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include "reference/cache/model_cache.h"
#include "tests/tools/process/child_time.h"
#include "tools/corridor/registry.h"
#include "tools/kvcheck/tool_main.h"

namespace kvcheck {
namespace {

// Runs `misbehave` at a trim of a batch of two rows, the first of at least two tokens.
void Register(const char* name, void (*misbehave)()) {
  RegisterCacheImplementation(name, [=] {
    CacheRules rules;
    rules.legal = [misbehave](const CacheCall& call, std::string_view*) {
      if (call.op != CacheOpKind::kTrim || call.count < 1) return;
      if (call.state->rows.size() == 2 && call.state->rows[0].offset >= 2) misbehave();
    };
    return std::make_unique<ModelFactory>(rules, name);
  });
}

void Hang() {
  if (ChildTime* const time = ChildTime::FromEnvironment()) time->Hang();
  volatile unsigned turns = 0;
  while (true) turns = turns + 1;
}

class WithoutRings : public CacheFactory {
 public:
  CacheCapabilities GetCapabilities() const override { return model_.GetCapabilities(); }
  OpResult Start(const CacheSetup& setup) override { return model_.Start(setup); }
  OpResult New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
               std::span<const int64_t> left_padding, std::unique_ptr<Cache>* out) override {
    if (layout.kind == LayoutKind::kRing) return OpResult::Unsupported("no rings");
    return model_.New(layout, k, v, rows, left_padding, out);
  }
  OpResult Merge(std::span<const Cache* const> caches, std::unique_ptr<Cache>* out) override {
    return model_.Merge(caches, out);
  }
  OpResult Load(const StateStore& store, std::string_view key,
                std::unique_ptr<Cache>* out) override {
    return model_.Load(store, key, out);
  }

 private:
  ModelFactory model_;
};

// The same, which says what it has.
class Few : public WithoutRings {
 public:
  CacheCapabilities GetCapabilities() const override {
    CacheCapabilities capabilities = WithoutRings::GetCapabilities();
    CacheSpace space;
    space.layouts = {"linear"};
    space.rows = SpaceRows::kSingle;
    space.operations = 0;
    for (const CacheOpKind kind :
         {CacheOpKind::kNew, CacheOpKind::kAppend, CacheOpKind::kTrim, CacheOpKind::kAttend}) {
      space.operations |= 1u << static_cast<int>(kind);
    }
    capabilities.spaces = {space};
    return capabilities;
  }
};

// Caches that can be made, and nothing else.
class OnlyNew : public CacheFactory {
 public:
  CacheCapabilities GetCapabilities() const override { return model_.GetCapabilities(); }
  OpResult Start(const CacheSetup& setup) override { return model_.Start(setup); }
  OpResult New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
               std::span<const int64_t> left_padding, std::unique_ptr<Cache>* out) override {
    std::unique_ptr<Cache> made;
    const OpResult result = model_.New(layout, k, v, rows, left_padding, &made);
    if (result.ok()) *out = std::make_unique<Made>(std::move(made));
    return result;
  }
  OpResult Merge(std::span<const Cache* const>, std::unique_ptr<Cache>*) override { return No(); }
  OpResult Load(const StateStore&, std::string_view, std::unique_ptr<Cache>*) override {
    return No();
  }

 private:
  static OpResult No() { return OpResult::Unsupported("not here"); }

  class Made : public Cache {
   public:
    explicit Made(std::unique_ptr<Cache> empty) : empty_(std::move(empty)) {}
    OpResult Append(const TokenColumns&) override { return No(); }
    OpResult Prepare(std::span<const int64_t>, int64_t) override { return No(); }
    OpResult Finalize() override { return No(); }
    OpResult Trim(int64_t, int64_t*) override { return No(); }
    OpResult Filter(std::span<const int64_t>) override { return No(); }
    OpResult Extend(const Cache&) override { return No(); }
    OpResult ToQuantized(const KvFormat&, const KvFormat&) override { return No(); }
    OpResult Extract(int64_t, std::unique_ptr<Cache>*) const override { return No(); }
    OpResult CopyTo(std::unique_ptr<Cache>*) const override { return No(); }
    OpResult Save(StateStore*, std::string_view) const override { return No(); }
    OpResult Attend(const AttendRequest&, std::byte*) override { return No(); }
    void Observe(StepView* view) override { empty_->Observe(view); }
    int64_t RetainedTokens(int64_t row) const override { return empty_->RetainedTokens(row); }

   private:
    std::unique_ptr<Cache> empty_;
  };

  ModelFactory model_;
};

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  using namespace kvcheck;
  CountTimeOfEnvironment();
  Register("selftest:abort", [] { abort(); });
  Register("selftest:segv", [] { raise(SIGSEGV); });
  Register("selftest:hang", Hang);
  Register("selftest:throw", [] { throw std::runtime_error("out of columns"); });
  Register("selftest:exit", [] { _Exit(0); });
  RegisterCacheImplementation("selftest:no_rings", [] { return std::make_unique<WithoutRings>(); });
  RegisterCacheImplementation("selftest:only_new", [] { return std::make_unique<OnlyNew>(); });
  RegisterCacheImplementation("selftest:few", [] { return std::make_unique<Few>(); });
  return ToolMain(argc, argv);
}
