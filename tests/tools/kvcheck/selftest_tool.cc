// The tool with caches that misbehave beyond what a mutant of the model may: they crash, hang and
// throw in rare states, or have not everything. Otherwise they are the model.

#include <signal.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>

#include "reference/cache/model_cache.h"
#include "tools/kvcheck/cache_implementations.h"
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

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  using namespace kvcheck;
  Register("selftest:abort", [] { abort(); });
  Register("selftest:segv", [] { raise(SIGSEGV); });
  Register("selftest:hang", Hang);
  Register("selftest:throw", [] { throw std::runtime_error("out of columns"); });
  Register("selftest:exit", [] { _Exit(0); });
  RegisterCacheImplementation("selftest:no_rings", [] { return std::make_unique<WithoutRings>(); });
  RegisterCacheImplementation("selftest:few", [] { return std::make_unique<Few>(); });
  return ToolMain(argc, argv);
}
