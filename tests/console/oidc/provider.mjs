// A real OpenID provider on loopback for tests: node provider.mjs MODULES REDIRECT_URI. Prints its port; whoever logs in is
// believed, and is in the group that stands before a dash in their name.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [modules, redirect] = process.argv.slice(2);
const found = createRequire(pathToFileURL(`${modules}/x.js`)).resolve("oidc-provider");
const { default: Provider } = await import(pathToFileURL(found).href);

const server = createServer((request, answer) => handler(request, answer));
let handler;
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address();
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [
      {
        client_id: "vedette",
        client_secret: "a-secret-of-the-tests",
        redirect_uris: [redirect],
        grant_types: ["authorization_code"],
        response_types: ["code"],
      },
    ],
    claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
    conformIdTokenClaims: false,
    cookies: { keys: ["a key of the tests"] },
    features: { devInteractions: { enabled: true } },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: id.split("-").pop(), groups: [id.split("-")[0]] }),
    }),
  });
  handler = provider.callback();
  console.log(port);
});
