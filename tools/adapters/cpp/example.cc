// An adapter in C++, whole: caches and attention in plain code behind kvcheck_adapter.h.
//
//   kvcheck fuzz --impl './example'             passes
//   kvcheck fuzz --impl './example --broken'    finds that merge forgets the order of a ring
//
// A library of yours takes the place of example_cache.h; this file then stays nearly as it is.

#include <cstring>
#include <memory>
#include <vector>

#include "example_attention.h"
#include "example_cache.h"
#include "example_record.h"
#include "kvcheck_adapter.h"

namespace {

class Example : public kvcheck_adapter::Adapter {
 public:
  explicit Example(bool is_broken) : is_broken_(is_broken) {}

  kvcheck_adapter::Greeting Greet() override {
    kvcheck_adapter::Greeting greeting;
    greeting.name = is_broken_ ? "cpp-example-broken" : "cpp-example";
    greeting.version = "1";
    greeting.kinds = {"cache", "attention"};
    greeting.plan = kPlan;
    kvcheck_adapter::CacheSpace caches;
    caches.layouts = {"linear", "linear:w", "ring", "ring:keep"};
    caches.x = {"f32", "f16", "bf16"};
    caches.formats = {"f32", "f16", "bf16"};
    caches.stored_as_given = true;
    caches.operations = {"new",    "append", "prepare", "finalize", "trim",
                         "filter", "extend", "merge",   "extract",  "copy",
                         "save",   "load",   "damage",  "attend",   "drop"};
    greeting.cache_spaces = {caches};
    kvcheck_adapter::AttentionSpace attention;
    attention.q = attention.k = attention.v = {"f32", "f16", "bf16"};
    attention.out = {"q"};
    attention.lse = attention.softcap = attention.alibi = attention.against_original = false;
    greeting.attention_spaces = {attention};
    return greeting;
  }

  void Start(const kvcheck_adapter::Setup& setup) override { setup_ = setup; }

  std::unique_ptr<kvcheck_adapter::Cache> New(const kvcheck_adapter::NewCache& request) override {
    return std::make_unique<ExampleCache>(setup_, request);
  }
  std::unique_ptr<kvcheck_adapter::Cache> Merge(
      const std::vector<const kvcheck_adapter::Cache*>& caches) override {
    return ExampleCache::Merge(caches, is_broken_);
  }
  std::unique_ptr<kvcheck_adapter::Cache> Load(const std::vector<std::byte>& bytes) override {
    return ExampleCache::Load(setup_, bytes);
  }
  void ChangeVersion(std::vector<std::byte>* bytes) override { ChangeRecordVersion(bytes); }

  kvcheck_adapter::CaseAnswer Answer(const kvcheck_adapter::CaseRequest& request) override {
    return AnswerAttention(request);
  }

 private:
  bool is_broken_;
  kvcheck_adapter::Setup setup_;
};

}  // namespace

int main(int argc, char** argv) {
  Example example(argc > 1 && std::strcmp(argv[1], "--broken") == 0);
  return kvcheck_adapter::Serve(example);
}
