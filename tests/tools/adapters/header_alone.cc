// Compiles when kvcheck_adapter.h needs nothing before it, in each language level that it promises.

#include "tools/adapters/cpp/kvcheck_adapter.h"

namespace {

class Nothing : public kvcheck_adapter::Adapter {
  kvcheck_adapter::Greeting Greet() override { return {}; }
};

class NothingKept : public kvcheck_adapter::PrefixAdapter {
  kvcheck_adapter::Greeting Greet() override { return {}; }
  kvcheck_adapter::PrefixStarted Start(const kvcheck_adapter::PrefixSetup&,
                                       const std::optional<std::string>&, bool) override {
    return {};
  }
  kvcheck_adapter::Hit Open(const kvcheck_adapter::Numbers&, const kvcheck_adapter::Identity&,
                            bool) override {
    return {};
  }
};

}  // namespace

int main(int argc, char**) {
  Nothing nothing;
  NothingKept nothing_kept;
  return argc > 1 ? kvcheck_adapter::Serve(nothing_kept) : kvcheck_adapter::Serve(nothing);
}
